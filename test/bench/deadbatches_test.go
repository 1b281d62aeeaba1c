package main

import "testing"

// There are eight shapes, each with a benchmark of its own and the part of its bytes that the dead-buffer note found to stay.
func TestDeadBatchShapes(t *testing.T) {
	want := map[string]float64{
		"DeadBatches/append/rows=4096/payload=16/bury=true": 1, "DeadBatches/append/rows=4096/payload=256/bury=true": 1,
		"DeadBatches/append/rows=32768/payload=16/bury=true": 1, "DeadBatches/append/rows=32768/payload=256/bury=true": 1,
		"DeadBatches/upsert/rows=4096/payload=16/bury=true": 401408. / 100352, "DeadBatches/upsert/rows=4096/payload=256/bury=true": 1318912. / 329728,
		"DeadBatches/upsert/rows=32768/payload=16/bury=true": 3211264. / 100352, "DeadBatches/upsert/rows=32768/payload=256/bury=true": 10551296. / 329728,
	}
	shapes := deadBatchShapes()
	if len(shapes) != len(want) {
		t.Fatalf("%d shapes, want %d", len(shapes), len(want))
	}
	for _, s := range shapes {
		if less, ok := want[s.benchmark(true)]; !ok || s.less() != less {
			t.Errorf("%s: %s, 1/%g of the bytes; want 1/%g", s, s.benchmark(true), s.less(), less)
		}
	}
}
