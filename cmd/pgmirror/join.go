package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"golang.org/x/sync/errgroup"

	"pgmirror/iceberg"
	"pgmirror/mirror"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// serve builds the parts, runs the mirror until ctx ends, and answers on the socket and, if there is one, on the HTTP
// listener until the mirror has stopped.
func serve(ctx context.Context, s *settings, t target, dir *dataDir, listener net.Listener, screen *screenLog, log *slog.Logger) (err error) {
	warehouse, err := iceberg.Open(ctx, iceberg.Config{Dir: dir.path, Log: log, RowGroupBytes: rowGroupBytes(s.Memory), KeepSnapshots: s.Snapshots.keep, KeepAge: s.Snapshots.age})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, warehouse.Close()) }()
	disk := newDisk(dir.path, s.MinFreeDisk)
	source, err := openSource(s, t, dir.join(spillDir), disk, log)
	if err != nil {
		return err
	}
	defer source.Close()
	m, err := newMirror(s, t, dir, source, warehouse, disk, log)
	if err != nil {
		return err
	}
	limitHeap(s.Memory)
	registry, err := newRegistry(m)
	if err != nil {
		return err
	}
	socket, err := readstate.Listen(dir.path)
	if err != nil {
		return err
	}
	log.Info("pgmirror starts", "version", version, "database", t.database, "slot", t.slot, "publications", s.Publications, "data", dir.path)

	// The answering parts end after the mirror, whose last checkpoint they can still show, and at once when it fails.
	answering, stopAnswering := context.WithCancel(context.WithoutCancel(ctx))
	defer stopAnswering()
	group, answering := errgroup.WithContext(answering)
	mirroring, stopMirroring := context.WithCancel(ctx)
	defer stopMirroring()
	context.AfterFunc(answering, stopMirroring)
	server := readstate.NewServer(m, log, readstate.ServerConfig{Dir: dir.join(readsDir), Limit: s.ReadStateLimit, MaxBytes: s.ReadStateBytes, Weigh: m.ReadersWeigh, Paused: disk.Paused})
	m.ServedBy(server.Stats)
	group.Go(func() error { return server.Serve(answering, socket) })
	if listener != nil {
		log.Info("HTTP port is open", "address", listener.Addr().String())
		group.Go(func() error { return serveHTTP(answering, listener, newHTTPHandler(m, registry, s.Token), log) })
	}
	group.Go(func() error {
		defer stopAnswering()
		return m.Run(mirroring)
	})
	group.Go(func() error { showCopy(mirroring, m, screen, log); return nil })
	return group.Wait()
}

// newMirror makes a mirror of the settings, for run or, with a nil disk, for a command that does its work alone.
func newMirror(s *settings, t target, dir *dataDir, source *pgcdc.Source, warehouse *iceberg.Warehouse, disk *mirror.Disk, log *slog.Logger) (*mirror.Mirror, error) {
	m, err := mirror.New(mirror.Config{
		Version:             version,
		Slot:                t.slot,
		Publications:        s.Publications,
		Database:            t.database,
		IndexDir:            dir.join(indexDir),
		BatchRows:           s.BatchRows,
		FlushWorkers:        s.FlushWorkers,
		CopyWorkers:         s.CopyWorkers,
		Memory:              s.Memory,
		Staged:              source.Staged,
		CheckpointInterval:  s.CheckpointInterval,
		History:             s.History,
		CatalogPoll:         s.CatalogPoll,
		Disk:                disk,
		MaxSlotWAL:          s.MaxSlotWAL,
		DropSlot:            s.OnMaxSlotWAL == "drop-slot",
		Compact:             s.Compact,
		Grace:               s.Snapshots.grace,
		NullUnrepresentable: s.OnUnrepresentable == "null",
		Log:                 log,
	}, source, mirror.Over(warehouse), mirror.OSFiles(), mirror.SystemClock())
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return m, nil
}

func openSource(s *settings, t target, spill string, disk *mirror.Disk, log *slog.Logger) (*pgcdc.Source, error) {
	return pgcdc.New(pgcdc.Config{
		Source:         t.source,
		Publications:   s.Publications,
		Slot:           t.slot,
		SpillDir:       spill,
		Admit:          disk.Wait,
		PartialPublish: s.PartialPublish,
		Types:          s.Types,
		Log:            log,
	})
}
