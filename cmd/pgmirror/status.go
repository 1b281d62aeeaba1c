package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"pgmirror/iceberg"
	"pgmirror/mirror"
	"pgmirror/readstate"
)

type statusOptions struct {
	asJSON bool
	watch  time.Duration // 0: once
}

// leastWatch keeps a slip of the pen from asking the mirror without a pause.
const leastWatch = 100 * time.Millisecond

func (a *app) statusCommand() *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the mirror does and how far it is",
		Long: `status shows one screen: the state, the watermarks and the lag, what the slot keeps, memory, the last checkpoint, and every table.
When no mirror runs on the data directory, it shows what the last checkpoint left, and the exit code is 3.

--watch shows it again every two seconds, or as often as it says, until Ctrl-C: in place on a terminal, elsewhere a new block
each time. --json prints the document, with --watch one on each line.`,
		Args: func(cmd *cobra.Command, args []string) error {
			// --watch needs no value, so that one after a space comes as an argument.
			if len(args) == 1 && cmd.Flags().Changed("watch") {
				if every, err := time.ParseDuration(args[0]); err == nil {
					o.watch = every
					return nil
				}
			}
			return noArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.settings()
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("watch") && o.watch < leastWatch {
				return usage(fmt.Errorf("--watch: %s is shorter than %s", o.watch, leastWatch))
			}
			if o.watch > 0 {
				return a.watchStatus(cmd.Context(), s, o)
			}
			return a.status(cmd.Context(), s, o)
		},
	}
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the JSON document")
	cmd.Flags().DurationVar(&o.watch, "watch", 0, "show it again and again, every `DURATION`")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	return cmd
}

// status shows it once.
func (a *app) status(ctx context.Context, s *settings, o statusOptions) error {
	document, running, err := statusDocument(ctx, s.Data)
	if err != nil {
		return cannotRun(err)
	}
	text := string(document) + "\n"
	if !o.asJSON {
		width, _ := terminalSize(a.stdout)
		if text, err = fittedScreen(document, time.Now(), screenSize{width: width}); err != nil {
			return cannotRun(err)
		}
	}
	if err := a.print([]byte(text)); err != nil {
		return err
	}
	if !running {
		return cannotRun(fmt.Errorf("%w (%s)", readstate.ErrNotRunning, s.Data))
	}
	return nil
}

// statusDocument is the running mirror's status, or, when none runs, what the last commit in the data directory left.
func statusDocument(ctx context.Context, data string) (document []byte, running bool, err error) {
	client, err := readstate.Dial(ctx, data)
	if err == nil {
		defer client.Close()
		document, err = client.Status(ctx)
		return document, true, err
	}
	if !errors.Is(err, readstate.ErrNotRunning) {
		return nil, false, err
	}
	if missing := checkFormatFile(data); missing != nil {
		return nil, false, errors.Join(err, missing)
	}
	document, err = stoppedStatus(ctx, data)
	return document, false, err
}

func stoppedStatus(ctx context.Context, data string) (_ []byte, err error) {
	committed, err := iceberg.OpenReadOnly(ctx, iceberg.Config{Dir: data})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, committed.Close()) }()
	text, at := committed.LastCommit()
	stored, err := mirror.ReadStored(text)
	if err != nil {
		return nil, err
	}
	state, err := committed.Pin(ctx, readstate.PinRequest{})
	if err != nil {
		return nil, err
	}
	defer state.Release()
	return json.Marshal(stored.Status(version, state, at))
}

// watchStatus shows it until a signal comes. A mirror that stops and comes back is followed.
func (a *app) watchStatus(ctx context.Context, s *settings, o statusOptions) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, unix.SIGWINCH)
	defer signal.Stop(resized)

	out := watcher{out: a.stdout, json: o.asJSON}
	if width, height := terminalSize(a.stdout); width > 0 && height > 0 && !o.asJSON && a.getenv("TERM") != "dumb" {
		out.inPlace = true
	}
	defer out.end()
	ticker := time.NewTicker(o.watch)
	defer ticker.Stop()
	for first := true; ; first = false {
		document, _, err := statusDocument(ctx, s.Data)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return cannotRun(err)
		case err != nil: // it is between two states, as when it stops: the next look tells
			err = out.show(fmt.Sprintf("no status: %s\n", oneLine(err.Error())))
		default:
			err = out.showDocument(document)
		}
		if err != nil {
			return cannotRun(fmt.Errorf("write the answer: %w", err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-resized:
		}
	}
}

// watcher shows one screen after another.
type watcher struct {
	out     io.Writer
	json    bool
	inPlace bool
	shown   bool
}

func (w *watcher) showDocument(document []byte) error {
	if w.json {
		_, err := w.out.Write(append(document, '\n'))
		return err
	}
	now, size := time.Now(), screenSize{}
	if w.inPlace {
		size.width, size.height = terminalSize(w.out)
	}
	size.height = max(0, size.height-2) // the clock's line, and the one on which the cursor rests
	text, err := fittedScreen(document, now, size)
	if err != nil {
		return err
	}
	return w.show(text)
}

// show writes a screen with the time above it: over the one before in place, else below it.
func (w *watcher) show(text string) error {
	if w.json {
		return nil // a line that is no document would break its reader
	}
	text = time.Now().Format(time.DateTime) + "\n" + text
	// Control sequences of ECMA-48: cursor home, erase to the end of the line, erase below; and of xterm: hide the cursor.
	switch {
	case !w.inPlace:
		text += "\n"
	default:
		begin := "\x1b[H"
		if !w.shown {
			begin = "\x1b[?25l\x1b[2J\x1b[H"
		}
		text = begin + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
	}
	w.shown = true
	_, err := io.WriteString(w.out, text)
	return err
}

// end leaves the last screen where it is and shows the cursor again.
func (w *watcher) end() {
	if w.inPlace && w.shown {
		// A terminal that has gone away cannot be told.
		_, _ = io.WriteString(w.out, "\x1b[?25h")
	}
}

// terminalSize is a terminal's, in characters and lines; 0 when w is none.
func terminalSize(w io.Writer) (width, height int) {
	f, ok := w.(*os.File)
	if !ok {
		return 0, 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), int(size.Row)
}
