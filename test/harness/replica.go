package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// KeepWAL makes a cluster keep all WAL that it writes, so that StartReplica can read any moment of its past.
func KeepWAL() Option { return Setting("wal_keep_size", "64GB") }

// Replica shows what a cluster held at any LSN of its past, as PostgreSQL's own recovery builds it: it begins as the fresh cluster
// that every Postgres begins as, and replays the WAL of another one up to where it is told, and not a byte further. Until
// Promote it is a hot standby: it answers queries and takes no writes.
type Replica struct {
	*Postgres
	source  *Postgres
	archive string
	at      pglogrepl.LSN
}

// StartReplica starts a replica of a cluster that was made with KeepWAL, at the LSN at which the cluster began. It ends with the
// test. The cluster may run or not; it is only read.
func StartReplica(t testing.TB, source *Postgres) *Replica {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgm")
	if err != nil {
		t.Fatal(err)
	}
	r := &Replica{source: source, archive: filepath.Join(dir, "archive")}
	// The replica takes each segment once. It looks for more when it is told (pg_reload_conf), so the interval is long.
	settings := append(append([]setting{}, source.settings...), setting{"hot_standby", "on"},
		setting{"restore_command", fmt.Sprintf(`mv %s/%%f "%%p" 2>/dev/null`, r.archive)}, setting{"wal_retrieve_retry_interval", "1s"})
	standby := func(p *Postgres) error {
		if err := os.Mkdir(r.archive, 0o700); err != nil {
			return err
		}
		signal := filepath.Join(p.DataDir(), "standby.signal")
		return errors.Join(give(r.archive, p.cred), os.WriteFile(signal, nil, 0o600), give(signal, p.cred))
	}
	r.Postgres, err = start(dir, standby, func(p *Postgres) { p.settings = settings })
	if err != nil {
		os.RemoveAll(dir)
		t.Fatalf("start a replica: %v", err)
	}
	r.endWith(t)
	r.at, err = r.replayed()
	if err != nil {
		t.Fatalf("start a replica: %v", err)
	}
	return r
}

// replayed is the end of the last record that was replayed.
func (r *Replica) replayed() (pglogrepl.LSN, error) {
	return pglogrepl.ParseLSN(r.QueryRow("select pg_last_wal_replay_lsn()"))
}

// Advance replays every record that ends at or below lsn, which must be the end of one and not below the LSN of the call before.
func (r *Replica) Advance(lsn pglogrepl.LSN) error {
	if lsn < r.at {
		return r.fail(fmt.Errorf("replay to %s: the replica is at %s", lsn, r.at))
	}
	if lsn == r.at {
		return nil
	}
	if err := r.provide(lsn); err != nil {
		return r.fail(fmt.Errorf("replay to %s: %w", lsn, err))
	}
	r.QueryRow("select pg_reload_conf()")
	for deadline := time.Now().Add(startLimit); ; time.Sleep(2 * time.Millisecond) {
		at, err := r.replayed()
		if err != nil {
			return r.fail(fmt.Errorf("replay to %s: %w", lsn, err))
		}
		if at == lsn {
			r.at = at
			return nil
		}
		if at > lsn || time.Now().After(deadline) {
			return r.fail(fmt.Errorf("replay to %s: it is at %s; no record ends where it was to stop", lsn, at))
		}
	}
}

// provide puts the WAL from where the replica is up to lsn into its archive. What follows in the last segment is zeros, in which
// PostgreSQL sees the end of the WAL. All of it is on timeline 1, which a cluster leaves only by a promotion.
func (r *Replica) provide(lsn pglogrepl.LSN) error {
	size, err := r.segmentSize()
	if err != nil {
		return err
	}
	for segment := uint64(r.at) / size; segment*size < uint64(lsn); segment++ {
		perID := uint64(1<<32) / size
		name := fmt.Sprintf("00000001%08X%08X", segment/perID, segment%perID)
		wal, err := os.ReadFile(filepath.Join(r.source.DataDir(), "pg_wal", name))
		if err != nil {
			return err
		}
		if end := segment*size + uint64(len(wal)); end > uint64(lsn) {
			clear(wal[uint64(len(wal))-(end-uint64(lsn)):])
		}
		path := filepath.Join(r.archive, name)
		unfinished := path + ".new"
		if err := errors.Join(os.WriteFile(unfinished, wal, 0o600), give(unfinished, r.cred), os.Rename(unfinished, path)); err != nil {
			return err
		}
	}
	return nil
}

// segmentSize is how many bytes of WAL a file holds.
func (r *Replica) segmentSize() (uint64, error) {
	segments, err := filepath.Glob(filepath.Join(r.source.DataDir(), "pg_wal", "00000001"+strings.Repeat("?", 16)))
	if err != nil || len(segments) == 0 {
		return 0, fmt.Errorf("no WAL in %s: %w", r.source.DataDir(), err)
	}
	info, err := os.Stat(segments[0])
	if err != nil {
		return 0, err
	}
	return uint64(info.Size()), nil
}

// Standby follows a cluster as it writes. It answers queries and takes no writes until Promote.
type Standby struct{ *Postgres }

// StartStandby starts a standby of a running cluster that was made with KeepWAL and wal_level logical. It takes its WAL through the physical slot "standby", which is made here, and is able to
// synchronize logical slots (from PostgreSQL 17 on). It ends with the test.
func StartStandby(t testing.TB, source *Postgres) *Standby {
	t.Helper()
	source.Exec("select pg_create_physical_replication_slot('standby', true)")
	dir, err := os.MkdirTemp("", "pgm")
	if err != nil {
		t.Fatal(err)
	}
	settings := append(append([]setting{}, source.settings...), setting{"hot_standby_feedback", "on"}, setting{"primary_slot_name", "standby"},
		setting{"wal_receiver_status_interval", "1s"}, setting{"primary_conninfo", source.socketString("postgres", "postgres")})
	standby := func(p *Postgres) error {
		signal := filepath.Join(p.DataDir(), "standby.signal")
		return errors.Join(os.WriteFile(signal, nil, 0o600), give(signal, p.cred))
	}
	s := &Standby{}
	s.Postgres, err = start(dir, standby, func(p *Postgres) { p.settings = settings })
	if err != nil {
		os.RemoveAll(dir)
		t.Fatalf("start a standby: %v", err)
	}
	s.endWith(t)
	return s
}

// Promote makes the standby a primary.
func (s *Standby) Promote() error { return s.promote() }

// Promote ends the replay where it is. Transactions that had not committed there are rolled back, and with them go their locks,
// which a standby keeps.
func (r *Replica) Promote() error { return r.promote() }

func (p *Postgres) promote() error {
	if got := p.QueryRow("select pg_promote()"); got != "t" {
		return p.fail(fmt.Errorf("promote the standby: %s", p.lastLog()))
	}
	return nil
}
