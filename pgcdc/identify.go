package pgcdc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
)

// Identify asks the server who it is. It refuses one that cannot be mirrored (ErrVersion, ErrWALLevel).
func (s *Source) Identify(ctx context.Context) (Identification, error) {
	conn, err := connect(ctx, s.replication)
	if err != nil {
		return Identification{}, err
	}
	defer closeConn(conn)
	id, err := identify(ctx, conn)
	if err != nil {
		return Identification{}, fmt.Errorf("identify the source: %w", err)
	}
	return id, nil
}

func identify(ctx context.Context, conn *pgconn.PgConn) (Identification, error) {
	system, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		if sqlState(err) == "42601" {
			return Identification{}, fmt.Errorf("%w (connect to the server itself, not through a connection pooler)", err)
		}
		return Identification{}, err
	}
	rows, err := query(ctx, conn, "SELECT current_setting('server_version_num'), current_setting('wal_level')")
	if err != nil {
		return Identification{}, err
	}
	if len(rows) != 1 || len(rows[0]) != 2 {
		return Identification{}, errors.New("the server does not tell its version")
	}
	version, err := strconv.Atoi(string(rows[0][0]))
	if err != nil {
		return Identification{}, fmt.Errorf("server_version_num: %w", err)
	}
	if level := string(rows[0][1]); level != "logical" {
		return Identification{}, fmt.Errorf("%w (it is %s)", ErrWALLevel, level)
	}
	id := Identification{
		SystemID: system.SystemID, Timeline: system.Timeline, WALEnd: system.XLogPos,
		Database: system.DBName, Version: version,
	}
	if id.Timeline <= 1 {
		return id, nil
	}
	history, err := pglogrepl.TimelineHistory(ctx, conn, id.Timeline)
	if err != nil {
		return Identification{}, fmt.Errorf("history of timeline %d: %w", id.Timeline, err)
	}
	if id.History, err = parseHistory(string(history.Content)); err != nil {
		return Identification{}, fmt.Errorf("history of timeline %d: %w", id.Timeline, err)
	}
	return id, nil
}

// parseHistory reads a timeline history file: a line for each earlier timeline with its number, where it was left, and a
// reason; empty lines and comments in between (readTimeLineHistory in PostgreSQL's timeline.c).
func parseHistory(content string) ([]TimelineSwitch, error) {
	var history []TimelineSwitch
	for line := range strings.Lines(content) {
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) < 2 {
			return nil, malformedf("a history line of %d fields", len(fields))
		}
		timeline, err := strconv.ParseInt(fields[0], 10, 32)
		if err != nil {
			return nil, malformedf("timeline %q in a history line", fields[0])
		}
		end, err := parseLSN(fields[1])
		if err != nil {
			return nil, err
		}
		history = append(history, TimelineSwitch{Timeline: int32(timeline), End: end})
	}
	return history, nil
}

// parseLSN reads PostgreSQL's text form of an LSN, all of it: pglogrepl.ParseLSN passes over what follows.
func parseLSN(text string) (LSN, error) {
	high, low, ok := strings.Cut(text, "/")
	hi, err1 := strconv.ParseUint(high, 16, 32)
	lo, err2 := strconv.ParseUint(low, 16, 32)
	if !ok || err1 != nil || err2 != nil {
		return 0, malformedf("%q is not an LSN", text)
	}
	return LSN(hi<<32 | lo), nil
}
