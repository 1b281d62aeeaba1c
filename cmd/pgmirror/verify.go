package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pgmirror/mirror"
	"pgmirror/readstate"
)

type verifyOptions struct {
	sample   string
	patience time.Duration
	asJSON   bool
}

func (a *app) verifyCommand() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify [TABLE…]",
		Short: "Compare the mirror with the source, exactly, while both go on",
		Long: `verify compares each table's row count and a 128-bit hash of all its values, in any order, between a snapshot of the source
and the mirror at that snapshot's LSN. Writes go on meanwhile and make no difference. Of a table that differs it names up to
ten keys. --sample compares those rows whose key falls into that part of them, the same ones each time; the source sends
no others where the key's type allows it.

The source gives a snapshot once every transaction that had written before has ended; --patience bounds the wait, and that for tables that are being copied. It needs one
free replication slot for a moment.

The running mirror does the work. When none runs, verify does what run would: it follows the source until it has caught up,
compares, and stops with a checkpoint; it then needs --source.

Exit code 1 is a difference, a damaged file or a failed table; 3 means that nothing, or not every table, could be compared.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := o.request(args)
			if err != nil {
				return usage(err)
			}
			answer, err := a.verify(cmd.Context(), request)
			if err != nil {
				return err
			}
			return a.reportVerification(answer, o.asJSON)
		},
	}
	cmd.Flags().StringVar(&o.sample, "sample", "", "compare only this `PERCENT` of the rows, chosen by key, such as 1 or 0.1%")
	cmd.Flags().DurationVar(&o.patience, "patience", time.Minute, "how long open transactions may hold the source's snapshot back, and how long tables that are being copied are waited for")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the JSON document")
	bindSettings(cmd, a.flags, "source")
	return cmd
}

func (o verifyOptions) request(tables []string) (mirror.VerifyRequest, error) {
	request := mirror.VerifyRequest{Tables: tables}
	if o.sample != "" {
		percent, err := strconv.ParseFloat(strings.TrimSuffix(o.sample, "%"), 64)
		if err != nil || !(percent > 0 && percent <= 100) {
			return request, fmt.Errorf("--sample: %q is not a percentage above 0 and up to 100", o.sample)
		}
		request.Sample = percent
	}
	if o.patience < time.Millisecond || o.patience > 24*time.Hour {
		return request, fmt.Errorf("--patience: %s is not between 1ms and 24h", o.patience)
	}
	if o.patience != time.Minute {
		request.PatienceMS = o.patience.Milliseconds()
	}
	return request, nil
}

// verify lets the running mirror compare, or this process when there is none. It returns the mirror.VerifyReport as JSON.
func (a *app) verify(ctx context.Context, request mirror.VerifyRequest) ([]byte, error) {
	s, err := a.settings()
	if err != nil {
		return nil, err
	}
	shown := newVerifyProgress(a.stderr)
	defer shown.end()
	client, err := readstate.Dial(ctx, s.Data)
	if errors.Is(err, readstate.ErrNotRunning) {
		return a.verifyAlone(ctx, s, request, shown)
	}
	if err != nil {
		return nil, cannotRun(err)
	}
	defer client.Close()
	args, err := json.Marshal(request)
	if err != nil {
		return nil, cannotRun(fmt.Errorf("verify: %w", err))
	}
	answer, err := client.Call(ctx, "verify", args, shown.line)
	if err != nil {
		return nil, cannotRun(err)
	}
	return answer, nil
}
