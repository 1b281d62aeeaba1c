package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"pgmirror/duckdb"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

// holdMost is how long a client keeps a read state at most.
const holdMost = 500 * time.Millisecond

// readStates is one client: it pins its part of the read states, evenly over the time, and counts a table's rows in each.
func (s *soak) readStates(ctx context.Context, random *rand.Rand) error {
	each := s.length * time.Duration(s.readers) / time.Duration(s.states)
	due := time.Now().Add(time.Duration(random.Float64() * float64(each)))
	return s.connected(ctx, func(client *readstate.Client) error {
		var last readstate.LSN
		for ; pause(ctx, time.Until(due)); due = due.Add(each) {
			var err error
			if last, err = s.readState(ctx, client, random, last, min(each/2, holdMost)); err != nil {
				return err
			}
		}
		return nil
	})
}

// connected runs use with a connection to the mirror, with another one when the mirror was killed meanwhile.
func (s *soak) connected(ctx context.Context, use func(*readstate.Client) error) error {
	for {
		client, err := readstate.Dial(ctx, s.mirror.Load().data)
		if err == nil {
			err = use(client)
			client.Close()
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if s.kills == 0 || errors.Is(err, errWrong) {
			return err
		}
		pause(ctx, 100*time.Millisecond) // it is being started again
	}
}

// errWrong is a wrong answer, which no kill excuses.
var errWrong = errors.New("wrong answer")

// readState pins a state, counts the rows of a table that always has the same, reads some from memory and gives it up a little later.
func (s *soak) readState(ctx context.Context, client *readstate.Client, random *rand.Rand, last readstate.LSN, most time.Duration) (readstate.LSN, error) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), hangLimit)
	defer cancel()
	sent := time.Now()
	state, err := client.Pin(asking, readstate.PinRequest{VectorsLater: true})
	if err != nil {
		return 0, err
	}
	defer state.Release()
	if state.LSN < last {
		return 0, fmt.Errorf("%w: a state at %s came after one at %s", errWrong, state.LSN, last)
	}
	still := slices.DeleteFunc(slices.Clone(state.Tables), func(t *readstate.Table) bool { return s.still[tableKey(t)] == 0 })
	if len(still) != len(s.still) {
		return 0, fmt.Errorf("%w: %d of %d tables are in a state", errWrong, len(still), len(s.still))
	}
	table, err := still[random.IntN(len(still))].Complete(asking)
	if err != nil {
		return 0, err
	}
	s.note("read state", sent)
	s.pinned.Add(1)
	if rows := rowsOf(table); table.Err != "" || rows != s.still[tableKey(table)] {
		return 0, fmt.Errorf("%w: %s has %d rows at %s, always has %d %s", errWrong, tableKey(table), rows, state.LSN, s.still[tableKey(table)], table.Err)
	}
	if n := len(table.Batches); n > 0 {
		batch := table.Batches[random.IntN(n)]
		columns, err := batch.Columns.Read([]int{random.IntN(table.Schema.NumFields())}, 0, batch.Rows)
		if err != nil {
			return 0, err
		}
		if columns[0].Len() != batch.Rows {
			return 0, fmt.Errorf("%w: a column of %d rows has %d values", errWrong, batch.Rows, columns[0].Len())
		}
	}
	pause(ctx, time.Duration(random.Float64()*float64(most)))
	return state.LSN, nil
}

func tableKey(t *readstate.Table) string { return t.Name.Schema + "." + t.Name.Name }

// rowsOf counts the rows that a complete table shows.
func rowsOf(t *readstate.Table) (rows int64) {
	for _, f := range t.Files {
		rows += f.Rows - int64(f.Deleted.Cardinality())
	}
	for _, b := range t.Batches {
		rows += int64(b.Rows) - int64(b.Deleted.Cardinality())
	}
	return rows
}

// soakQuestions are what DuckDB is asked in turn. Want, if not empty, is the only answer at every commit.
var soakQuestions = []struct{ sql, want string }{
	{"SELECT s_quantity FROM ch.stock WHERE s_w_id = 1 AND s_i_id = 77", ""},
	{"SELECT round(sum(balance)) FROM hybench.savingaccount WHERE isblocked = 0", ""},
	{"SELECT max(n) FROM (SELECT type, count(*) AS n, sum(amount) FROM hybench.transfer GROUP BY type)", ""},
	{"SELECT max(s) FROM (SELECT ol_number, sum(ol_quantity), sum(ol_amount) AS s FROM ch.order_line GROUP BY ol_number)", ""},
	// A new order counts its district's number up in the transaction that inserts it, and the newest is never deleted.
	{"SELECT count(*) FROM ch.district JOIN (SELECT o_w_id, o_d_id, max(o_id) AS o FROM ch.orders GROUP BY ALL) ON o_w_id = d_w_id AND o_d_id = d_id WHERE d_next_o_id <> o + 1", "0"},
}

// betweenQuestions leaves the machine to others.
const betweenQuestions = 250 * time.Millisecond

// ask asks DuckDB one question after the other.
func (s *soak) ask(ctx context.Context) error {
	return s.connected(ctx, func(client *readstate.Client) error {
		duck, err := duckdb.Open(ctx, duckdb.Config{Source: client})
		if err != nil {
			return err
		}
		defer duck.Close()
		for i := 0; pause(ctx, betweenQuestions); i++ {
			q := soakQuestions[i%len(soakQuestions)]
			sent := time.Now()
			got, err := soakAnswer(ctx, duck, q.sql)
			if err != nil {
				return err
			}
			if i >= len(soakQuestions) { // the first of each kind is planned and read from disk
				s.note("DuckDB", sent)
			}
			if q.want != "" && got != q.want {
				return fmt.Errorf("%w: %s: %s", errWrong, q.sql, got)
			}
		}
		return nil
	})
}

// soakAnswer is the only value of an answer, which does not end with ctx but by itself.
func soakAnswer(ctx context.Context, duck *duckdb.DB, sql string) (string, error) {
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), hangLimit)
	defer cancel()
	return one(asking, duck, sql)
}

// heldPins stay from the beginning to the end, begun so far apart that each has other rows in memory.
const (
	heldPins  = 3
	heldApart = 7 * time.Second
)

// hold pins one state for the whole time: long before the end it has settled, and it must show the same rows all the time.
func (s *soak) hold(ctx context.Context, n int) error {
	if !pause(ctx, time.Duration(n)*heldApart) {
		return nil
	}
	return s.connected(ctx, func(client *readstate.Client) error {
		duck, err := duckdb.Open(ctx, duckdb.Config{Source: client})
		if err != nil {
			return err
		}
		defer duck.Close()
		at, err := duck.Pin(ctx, 0, time.Time{})
		if err != nil {
			return err
		}
		first, err := s.checksums(ctx, duck)
		if err != nil {
			return err
		}
		for running := true; running; { // four times, and at the end
			running = pause(ctx, s.length/5)
			again, err := s.checksums(ctx, duck)
			if err != nil {
				return fmt.Errorf("the pin at %s: %w", at, err)
			}
			if !slices.Equal(first, again) {
				return fmt.Errorf("%w: the pin at %s shows\n%q, at first\n%q", errWrong, at, again, first)
			}
		}
		s.say("the pin at %s shows the same rows", at)
		return nil
	})
}

// checksums are the number of rows and an order-independent checksum of each table of a state.
func (s *soak) checksums(ctx context.Context, duck *duckdb.DB) ([]string, error) {
	tables, err := s.pg.Query("SELECT schemaname, tablename FROM pg_publication_tables ORDER BY 1, 2")
	if err != nil {
		return nil, err
	}
	var sums []string
	for _, t := range tables {
		sum, err := soakAnswer(ctx, duck, fmt.Sprintf("SELECT concat_ws(' ', '%s.%s', count(*), sum(hash(t)::HUGEINT)) FROM %[3]s.%[4]s AS t", t[0], t[1], harness.Ident(t[0]), harness.Ident(t[1])))
		if err != nil {
			return nil, err
		}
		sums = append(sums, sum)
	}
	return sums, nil
}
