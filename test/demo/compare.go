package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/readstate"
	"pgmirror/test/harness"
)

// questions are asked of both sides. Their answers have the same text in both.
var questions = []string{
	"SELECT status, count(*), sum(total) FROM orders GROUP BY status ORDER BY 2, 1",
	"SELECT c.name, sum(i.quantity * i.price) AS spent FROM customers c JOIN orders o ON o.customer_id = c.id JOIN order_items i ON i.order_id = o.id GROUP BY c.id, c.name ORDER BY 2 DESC, 1 LIMIT 3",
	"SELECT reason, count(*), sum(delta) FROM stock_moves GROUP BY reason ORDER BY 1",
	"SELECT count(*), count(*) FILTER (WHERE i.order_id IS NULL) AS without_items FROM orders o LEFT JOIN order_items i ON i.order_id = o.id AND i.line = 0",
}

// compareAnswers asks both sides the same questions at one LSN while the writers go on: PostgreSQL in the snapshot of a
// temporary slot, DuckDB at the slot's consistent point.
func (d *demo) compareAnswers(ctx context.Context, show bool) error {
	at, theirs, err := d.askPostgres(ctx)
	if err != nil {
		return fmt.Errorf("PostgreSQL: %w", err)
	}
	duck, err := d.openDuck(ctx, readstate.PinRequest{At: at})
	if err != nil {
		return err
	}
	defer duck.Close()
	different := false
	for i, question := range questions {
		ours, err := duck.texts(ctx, question)
		if err != nil {
			return err
		}
		same := render(ours) == render(theirs[i])
		different = different || !same
		if show && i < 3 || !same {
			sideBySide(question, theirs[i], ours)
		}
	}
	if different {
		return fmt.Errorf("at %s: %w", at, errDiffers)
	}
	d.say("%d questions at %s, under load: PostgreSQL and DuckDB answer alike", len(questions), at)
	return nil
}

// askPostgres answers the questions as of a slot's consistent point: the snapshot that the slot exports shows exactly the
// commits below it.
func (d *demo) askPostgres(ctx context.Context) (at pglogrepl.LSN, answers [][][]string, err error) {
	replication, err := pgconn.Connect(ctx, d.pg.URL("postgres", "shop")+"&replication=database")
	if err != nil {
		return 0, nil, err
	}
	defer replication.Close(context.WithoutCancel(ctx))
	slot, err := pglogrepl.CreateReplicationSlot(ctx, replication, fmt.Sprintf("demo_%d", time.Now().UnixNano()), "pgoutput",
		pglogrepl.CreateReplicationSlotOptions{Temporary: true, SnapshotAction: "EXPORT_SNAPSHOT"})
	if err != nil {
		return 0, nil, err
	}
	if at, err = pglogrepl.ParseLSN(slot.ConsistentPoint); err != nil {
		return 0, nil, err
	}
	session, err := d.pg.Connect("postgres", "shop")
	if err != nil {
		return 0, nil, err
	}
	defer session.Close()
	if err := session.Exec("BEGIN ISOLATION LEVEL REPEATABLE READ", "SET TRANSACTION SNAPSHOT '"+slot.SnapshotName+"'"); err != nil {
		return 0, nil, err
	}
	for _, question := range questions {
		rows, err := session.Query(question)
		if err != nil {
			return 0, nil, err
		}
		answers = append(answers, rows)
	}
	return at, answers, nil
}

func render(rows [][]string) string {
	lines := make([]string, len(rows))
	for i, row := range rows {
		lines[i] = strings.Join(row, " | ")
	}
	return strings.Join(lines, "\n")
}

func sideBySide(question string, theirs, ours [][]string) {
	fmt.Printf("\n        %s\n        %-38s  %s\n", question, "PostgreSQL", "DuckDB")
	for i := range max(len(theirs), len(ours)) {
		var left, right string
		if i < len(theirs) {
			left = strings.Join(theirs[i], " | ")
		}
		if i < len(ours) {
			right = strings.Join(ours[i], " | ")
		}
		fmt.Printf("        %-38s  %s\n", left, right)
	}
	fmt.Println()
}

// compareEverything compares every row of every table, after the writers have stopped, with everything committed visible.
func (d *demo) compareEverything(ctx context.Context) error {
	duck, err := d.openDuck(ctx, readstate.PinRequest{WaitSource: true})
	if err != nil {
		return err
	}
	defer duck.Close()
	session, err := d.pg.Connect("postgres", "shop")
	if err != nil {
		return err
	}
	defer session.Close()
	total, different := 0, 0
	for _, t := range tables {
		theirs, err := session.Query(t.query(postgresText))
		if err != nil {
			return err
		}
		ours, err := duck.texts(ctx, t.query(duckText))
		if err != nil {
			return err
		}
		missing, surplus := difference(theirs, ours)
		if missing+surplus > 0 {
			fmt.Printf("        %s: %d rows are missing from the mirror, %d are too many\n", t.name, missing, surplus)
		}
		total += len(theirs)
		different += missing + surplus
	}
	if different > 0 {
		return fmt.Errorf("%d rows: %w", different, errDiffers)
	}
	d.say("all %d rows of all %d tables compared: equal", total, len(tables))
	return errors.Join(d.pgmirror(ctx, "status"))
}

// query selects a table's columns as text that both sides write alike.
func (t table) query(text func(c column) string) string {
	columns := make([]string, len(t.columns))
	for i, c := range t.columns {
		columns[i] = text(c)
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM " + harness.Ident("public") + "." + harness.Ident(t.name)
}

func postgresText(c column) string {
	switch c.kind {
	case instant:
		return "(extract(epoch FROM " + c.name + ") * 1000000)::bigint"
	case list:
		return "array_to_json(" + c.name + ")"
	}
	return c.name
}

func duckText(c column) string {
	switch c.kind {
	case instant:
		return "epoch_us(" + c.name + ")"
	case list:
		return "to_json(" + c.name + ")"
	}
	return c.name
}

// difference compares rows as multisets.
func difference(theirs, ours [][]string) (missing, surplus int) {
	counts := map[string]int{}
	for _, row := range theirs {
		counts[strings.Join(row, "\x00")]++
	}
	for _, row := range ours {
		counts[strings.Join(row, "\x00")]--
	}
	for _, n := range counts {
		missing += max(0, n)
		surplus += max(0, -n)
	}
	return missing, surplus
}
