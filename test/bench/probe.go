package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"pgmirror/duckdb"
	"pgmirror/readstate"
)

// probeCommand makes this program the process that asks DuckDB: bench probe URL DATA DURATION.
const probeCommand = "probe"

// probed is what it prints, in milliseconds.
type probed struct {
	Commit []float64 // from a commit's return until an answer shows its row, asked again and again
	Wait   []float64 // from a commit's return until the answer to one question that waits for the commit's LSN
	Query  []float64 // one question
	Paper  []float64 // from the newest fresh_ts in an answer to when the question was sent
}

// Between two questions, and between two commits.
const (
	askPause    = time.Millisecond
	commitPause = 20 * time.Millisecond
)

// paperEvery is the number of commits between two questions of the paper's kind.
const paperEvery = 4

// waitingPinner lets statements wait for an LSN that changes between them.
type waitingPinner struct {
	*readstate.Client
	lsn pglogrepl.LSN
}

func (w *waitingPinner) Pin(ctx context.Context, req readstate.PinRequest) (*readstate.State, error) {
	req.WaitLSN = w.lsn
	return w.Client.Pin(ctx, req)
}

func probe(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return errors.New("probe: URL, data directory and duration are due")
	}
	length, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, args[0])
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	client, err := readstate.Dial(ctx, args[1])
	if err != nil {
		return err
	}
	defer client.Close()
	pinner := &waitingPinner{Client: client}
	duck, err := duckdb.Open(ctx, duckdb.Config{Source: pinner})
	if err != nil {
		return err
	}
	defer duck.Close()
	var id int64
	if err := conn.QueryRow(ctx, "SELECT coalesce(max(id), 0) FROM pings").Scan(&id); err != nil {
		return err
	}
	var p probed
	for end := time.Now().Add(length); time.Now().Before(end); {
		id++
		if id%2 == 0 {
			err = p.wait(ctx, conn, duck, pinner, id)
		} else {
			err = p.commit(ctx, conn, duck, id)
		}
		if err != nil {
			return err
		}
		if id%paperEvery == 0 {
			if err := p.paper(ctx, duck); err != nil {
				return err
			}
		}
		time.Sleep(commitPause)
	}
	return json.NewEncoder(os.Stdout).Encode(p)
}

// commit writes a row and asks until it is there.
func (p *probed) commit(ctx context.Context, conn *pgx.Conn, duck *duckdb.DB, id int64) error {
	if _, err := conn.Exec(ctx, "INSERT INTO pings VALUES ($1, now())", id); err != nil {
		return err
	}
	committed := time.Now()
	for {
		sent := time.Now()
		text, err := one(ctx, duck, "SELECT coalesce(max(id), 0) FROM public.pings")
		if err != nil {
			return err
		}
		p.Query = append(p.Query, inMillis(time.Since(sent)))
		if seen, err := strconv.ParseInt(text, 10, 64); err != nil || seen >= id {
			p.Commit = append(p.Commit, inMillis(time.Since(committed)))
			return err
		}
		if time.Since(committed) > time.Minute {
			return errors.New("a commit is not visible after a minute")
		}
		time.Sleep(askPause)
	}
}

// wait writes a row and asks once, at the commit's LSN. Finding the LSN out is counted: a client would have to.
func (p *probed) wait(ctx context.Context, conn *pgx.Conn, duck *duckdb.DB, pinner *waitingPinner, id int64) error {
	if _, err := conn.Exec(ctx, "INSERT INTO pings VALUES ($1, now())", id); err != nil {
		return err
	}
	committed := time.Now()
	var lsn string
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&lsn); err != nil {
		return err
	}
	var err error
	if pinner.lsn, err = pglogrepl.ParseLSN(lsn); err != nil {
		return err
	}
	text, err := one(ctx, duck, "SELECT coalesce(max(id), 0) FROM public.pings")
	if err != nil {
		return err
	}
	p.Wait = append(p.Wait, inMillis(time.Since(committed)))
	if text != strconv.FormatInt(id, 10) {
		return fmt.Errorf("row %d is not visible at %s, but row %s is", id, lsn, text)
	}
	return nil
}

// paper asks as the Retina paper's client does.
func (p *probed) paper(ctx context.Context, duck *duckdb.DB) error {
	delay, err := staleness(ctx, duck)
	p.Paper = append(p.Paper, delay)
	return err
}

// staleness is freshness as the Retina paper defines it: from the newest fresh_ts in an answer to when the question was sent,
// in milliseconds.
func staleness(ctx context.Context, duck *duckdb.DB) (float64, error) {
	sent := time.Now()
	text, err := one(ctx, duck, fmt.Sprintf("SELECT epoch_us(max(fresh_ts)) FROM public.savingaccount WHERE fresh_ts < make_timestamptz(%d)", sent.UnixMicro()))
	if err != nil {
		return 0, err
	}
	newest, err := strconv.ParseInt(text, 10, 64)
	return float64(sent.UnixMicro()-newest) / 1000, err
}

// one is the only value of an answer.
func one(ctx context.Context, duck *duckdb.DB, sql string) (string, error) {
	rows, err := duck.Query(ctx, sql)
	if err != nil {
		return "", err
	}
	row, ok := rows.Next()
	if !ok || len(row) == 0 {
		return "", fmt.Errorf("%s: no row", sql)
	}
	return row[0].Value, nil
}
