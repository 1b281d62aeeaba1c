package duckdb

import (
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pgmirror/readstate"
)

// feeding serves states at 0/64 of a table public.orders, whose own columns are named as the feed's are, and of one in another schema; and feeds, which say
// what range they were asked for.
func feeding(t testing.TB) *fakePinner {
	own := arrow.NewSchema([]arrow.Field{col("_lsn", 1, arrow.BinaryTypes.String), col("v", 2, arrow.PrimitiveTypes.Int64)}, nil)
	feed := arrow.NewSchema(append([]arrow.Field{
		col(readstate.ChangeColumn, readstate.ChangeFieldID, arrow.BinaryTypes.String),
		col(readstate.ChangeLSNColumn, readstate.ChangeOrderFieldID, arrow.PrimitiveTypes.Int64),
	}, own.Fields()...), nil)
	// The same without the second _lsn, which JSON cannot tell from the first.
	given := arrow.NewSchema([]arrow.Field{feed.Field(0), feed.Field(1), feed.Field(3)}, nil)
	p := &fakePinner{path: []string{"$user", "public"}}
	p.make = func(int) (*readstate.State, error) {
		req := p.reqs[len(p.reqs)-1]
		if req.Changes == nil {
			odd := table("Odd.One", own, nil, nil)
			odd.Name.Schema = "S"
			return &readstate.State{LSN: 100, Tables: []*readstate.Table{odd, table("orders", own, nil, nil)}}, nil
		}
		rows := `[{"_change":"insert","_lsn":` + string('0'+rune(req.Changes.From%10)) + `,"v":1},{"_change":"delete","_lsn":9,"v":2}]`
		rec := record(t, given, rows)
		absent := array.MakeArrayOfNull(memory.DefaultAllocator, arrow.BinaryTypes.String, 2)
		rec = array.NewRecordBatch(feed, []arrow.Array{rec.Column(0), rec.Column(1), absent, rec.Column(2)}, 2)
		out := table(req.Changes.Table.Name, feed, nil, []readstate.Batch{batchOf(rec, nil)})
		out.Name = req.Changes.Table
		return &readstate.State{LSN: req.At, Tables: []*readstate.Table{out}}, nil
	}
	return p
}

// pgmirror_changes asks for the range that it is given, by default the whole window up to the statement's own LSN, and gives a feed its columns' names whatever the
// table's are; a bad argument is an error that says what is wrong; no state stays pinned.
func TestChanges(t *testing.T) {
	p := feeding(t)
	db := openTest(t, p)
	asked := func() readstate.PinRequest {
		for i := len(p.reqs) - 1; i >= 0; i-- {
			if p.reqs[i].Changes != nil {
				return p.reqs[i]
			}
		}
		return readstate.PinRequest{}
	}
	orders := readstate.TableName{Schema: "public", Name: "orders"}
	for sql, want := range map[string]readstate.Changes{
		"FROM pgmirror_changes('public.orders')":                        {Table: orders},
		"FROM pgmirror_changes('orders', NULL, '0/64')":                 {Table: orders},
		"FROM pgmirror_changes('ORDERS', '0/12')":                       {Table: orders, From: 0x12},
		"FROM pgmirror_changes('public.orders', 18, 100)":               {Table: orders, From: 18},
		`FROM pgmirror_changes('"S"."Odd.One"', '0/12', NULL)`:          {Table: readstate.TableName{Schema: "S", Name: "Odd.One"}, From: 0x12},
		`FROM pgmirror_changes('S.Odd.One', '0/12')`:                    {Table: readstate.TableName{Schema: "S", Name: "Odd.One"}, From: 0x12},
		"BEGIN; FROM pgmirror_changes('public.orders', '0/12'); COMMIT": {Table: orders, From: 0x12},
	} {
		if err := db.each(t.Context(), sql, func(*result) error { return nil }); err != nil {
			t.Errorf("%s: %v", sql, err)
		} else if got := asked(); *got.Changes != want || got.At != 100 {
			t.Errorf("%s: asked for %+v up to %s", sql, *got.Changes, got.At)
		}
	}
	got := query(t, db, "SELECT _change, _lsn, _lsn_1, v FROM pgmirror_changes('orders', '0/3') ORDER BY _lsn")
	if want := [][]string{{"insert", "3", "<NULL>", "1"}, {"delete", "9", "<NULL>", "2"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	got = query(t, db, "SELECT count(*) FROM pgmirror_changes('orders', '0/3') a JOIN pgmirror_changes('orders', '0/4') b USING (v)")
	if got[0][0] != "2" {
		t.Errorf("two feeds joined: %v", got)
	}
	for sql, want := range map[string]string{
		"FROM pgmirror_changes('nothing')":                 "table nothing is not mirrored",
		"FROM pgmirror_changes('orders', 'x')":             `"x" is not an LSN`,
		"FROM pgmirror_changes('orders', '0/0')":           `"0/0" is not an LSN`,
		"FROM pgmirror_changes('orders', '0/1', '0/65')":   "ends at 0/65, but this statement reads 0/64",
		"FROM pgmirror_changes('orders', -1)":              `"-1" is not an LSN`,
		"SELECT * FROM pgmirror_changes('orders', '0/1');": "",
	} {
		_, err := db.Query(t.Context(), sql)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error %v, want %q", sql, err, want)
		}
	}
}
