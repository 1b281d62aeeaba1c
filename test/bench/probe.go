package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"pgmirror/duckdb"
	"pgmirror/readstate"
)

// probeCommand makes this program the process that asks DuckDB: bench probe URL DATA DURATION.
const probeCommand = "probe"

// probed is what it prints, in milliseconds.
type probed struct {
	Commit []float64 // from a commit's return until an answer shows its row
	Query  []float64 // one question
	Paper  []float64 // from the newest fresh_ts in an answer to when the question was sent
}

// paperEvery is the number of commits between two questions of the paper's kind.
const paperEvery = 4

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
	duck, err := duckdb.Open(ctx, duckdb.Config{Source: client})
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
		if err := p.commit(ctx, conn, duck, id); err != nil {
			return err
		}
		if id%paperEvery == 0 {
			if err := p.paper(ctx, duck); err != nil {
				return err
			}
		}
		time.Sleep(20 * time.Millisecond)
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
	}
}

// paper asks as the Retina paper's client does.
func (p *probed) paper(ctx context.Context, duck *duckdb.DB) error {
	sent := time.Now()
	text, err := one(ctx, duck, fmt.Sprintf("SELECT epoch_us(max(fresh_ts)) FROM public.savingaccount WHERE fresh_ts < make_timestamptz(%d)", sent.UnixMicro()))
	if err != nil {
		return err
	}
	newest, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return err
	}
	p.Paper = append(p.Paper, float64(sent.UnixMicro()-newest)/1000)
	return nil
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
