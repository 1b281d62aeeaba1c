package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// stopLimit is how long a stop may take: reading ends, a checkpoint is committed and acknowledged.
const stopLimit = 30 * time.Second

// everyTable stands for --create-publication without a list.
const everyTable = "*"

func (a *app) runCommand() *cobra.Command {
	var create string
	cmd := &cobra.Command{
		Use:   "run --source URL --publication NAME",
		Short: "Mirror a publication until stopped",
		Long: `run copies the publication's tables, then follows the source commit by commit. It starts with the quick part of check: what
would make a new mirror impossible ends it with the fix, and everything else that is wrong is logged once. The first SIGTERM or SIGINT stops it in
order: no more changes are read, what is visible is committed and acknowledged. The second stops it at once; nothing is
lost by that either.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.settings()
			if err != nil {
				return err
			}
			return a.run(cmd.Context(), s, create)
		},
	}
	bindSettings(cmd, a.flags)
	cmd.Flags().StringVar(&create, "create-publication", "", "create the publication if it is missing, of every table with a usable identity or of the named `TABLES`, separated by commas")
	cmd.Flags().Lookup("create-publication").NoOptDefVal = everyTable
	return cmd
}

func (a *app) run(ctx context.Context, s *settings, create string) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	t, err := s.target()
	if err != nil {
		return err
	}
	if len(s.Publications) == 0 {
		return usage(errors.New("publication is not set: use --publication, PGMIRROR_PUBLICATION or the config file"))
	}
	var tables []string
	if create != "" && create != everyTable {
		if tables, err = splitQuoted(create, ','); err != nil {
			return usage(fmt.Errorf("--create-publication: %w", err))
		}
		if len(s.Publications) > 1 {
			return usage(errors.New("--create-publication with a list of tables needs exactly one --publication"))
		}
	}
	screen := &screenLog{out: a.stderr}
	log := newLog(s, screen)
	for _, name := range s.unknown {
		log.Warn("a variable of the environment is no setting and is ignored", "variable", name)
	}
	for _, path := range a.openSecrets(s) {
		log.Warn("others may read a file with a password", "path", path, "fix", "chmod 600 "+path)
	}

	dir, err := createDataDir(s.Data)
	if err != nil {
		return cannotRun(err)
	}
	defer dir.Close()
	// The port is taken before anything else is started: a wrong one is found at once.
	listener, err := listen(ctx, s)
	if err != nil {
		return cannotRun(err)
	}
	if listener != nil {
		defer listener.Close()
	}

	err = untilStopped(ctx, signals, stopLimit, log, func(ctx context.Context) error {
		if create != "" {
			if err := createPublications(ctx, s, t, tables, log); err != nil {
				return err
			}
		}
		wait, err := a.preflight(ctx, s, t, dir, log)
		if err != nil {
			return err
		}
		defer wait()
		return serve(ctx, s, t, dir, listener, screen, log)
	})
	if err != nil {
		return cannotRun(err)
	}
	log.Info("stopped")
	return nil
}

func listen(ctx context.Context, s *settings) (net.Listener, error) {
	if s.Listen == "off" {
		return nil, nil
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return nil, fmt.Errorf("open the HTTP port: %w (--listen changes it, \"off\" opens none)", err)
	}
	return l, nil
}

// createPublications makes each publication that does not exist, of the tables given as in SQL or, with none, of every table
// with a usable identity.
func createPublications(ctx context.Context, s *settings, t target, tables []string, log *slog.Logger) error {
	source, err := openSource(s, t, "", nil, log)
	if err != nil {
		return err
	}
	defer source.Close()
	for _, name := range s.Publications {
		if err := source.CreatePublication(ctx, name, tables); err != nil {
			return err
		}
	}
	return nil
}

// errCutShort says that a stop was not waited for. What was not committed comes again from the source at the next start.
var errCutShort = errors.New("stopped without a last checkpoint")

// untilStopped runs work until it ends by itself or a signal asks it to: the first cancels its context, which it follows
// within limit; a second one, or the limit, leaves it where it is.
func untilStopped(ctx context.Context, signals <-chan os.Signal, limit time.Duration, log *slog.Logger, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- work(ctx) }()

	select {
	case err := <-ended:
		return err
	case s := <-signals:
		log.Info("asked to stop", "signal", s.String())
	case <-ctx.Done():
	}
	cancel()
	asked := time.Now()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		select {
		case err := <-ended:
			if errors.Is(err, context.Canceled) { // it had not come to the point where there is something to finish
				return nil
			}
			return err
		case s := <-signals:
			if time.Since(asked) < sameStop {
				continue
			}
			return fmt.Errorf("second %s: %w", s, errCutShort)
		case <-timeout.C:
			return fmt.Errorf("the stop took longer than %s: %w", limit, errCutShort)
		}
	}
}

// sameStop is for how long further signals are the same wish to stop: a supervisor that signals the process and its group sends two.
const sameStop = time.Second
