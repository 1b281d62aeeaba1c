package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// loadCommand makes this program the process that writes the mix, on a processor apart, until its input ends: bench load URL RATE.
const loadCommand = "load"

// load prints the row changes a second that it reached.
func load(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("load: URL and rate are due")
	}
	rate, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if err := runOn(ctx, loadProcessor); err != nil {
		return err
	}
	began, writing := time.Now(), startPaced(ctx, args[0], rate, nil)
	_, err = io.Copy(io.Discard, os.Stdin)
	if err := errors.Join(err, writing.end()); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(float64(writing.rows.Load()) / time.Since(began).Seconds())
}

// startLoad starts that process; stop ends it and returns what it printed.
func startLoad(ctx context.Context, url string, rate int) (stop func() (float64, error), err error) {
	cmd := exec.CommandContext(ctx, os.Args[0], loadCommand, url, strconv.Itoa(rate))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() (reached float64, err error) {
		in.Close()
		if err := cmd.Wait(); err != nil {
			return 0, fmt.Errorf("%s: %w", loadCommand, err)
		}
		return reached, json.Unmarshal(out.Bytes(), &reached)
	}, nil
}
