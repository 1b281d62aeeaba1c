package mirror

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"pgmirror/readstate"
)

// TestDocumentRoundTrip: a document comes back as it was stored; a fork is told from ours by the commit's mark afterwards too.
func TestDocumentRoundTrip(t *testing.T) {
	want := document{Format: 1, Phase: phaseStreaming, Slot: "s", Database: "d", SystemID: "7123456789012345678", Timeline: 3,
		Publication: []string{"p", "q"}, SearchPath: []string{"public"}, Cut: 0xFFFFFFFF_FFFFFFF0, Checkpoint: 17,
		LastCommit: commitMark{0x16_B374D848, 4294967295, time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)},
		Tables: []tableRecord{
			{OID: 4294967295, Name: readstate.TableName{Schema: "S", Name: `a "b"`}, UUID: "u", State: stateStreaming, Fingerprint: "f", Mode: wholeRow, Key: []int{2, 0}, Nulled: 5, Rows: 1 << 40},
			{OID: 2, Name: readstate.TableName{Schema: "s", Name: "t"}, State: stateFailed, Failure: &failure{Reason: "r", LSN: 9, Good: 8, Key: "k=1", Column: "c", Remedy: "m"}},
		}}
	text, err := want.encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(*got, want) || !got.LastCommit.equal(want.LastCommit) {
		t.Errorf("got %+v\nwant %+v", *got, want)
	}
}

// TestDocumentRefused: a newer format is refused by number, and what is no document is an error.
func TestDocumentRefused(t *testing.T) {
	if _, err := decodeDocument([]byte(`{"format":2}`)); !errors.Is(err, ErrRefused) {
		t.Errorf("format 2: %v", err)
	}
	for _, text := range []string{"", "{", `{"format":"1"}`, `{"format":1,"cut":-1}`} {
		if _, err := decodeDocument([]byte(text)); err == nil || errors.Is(err, ErrRefused) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
