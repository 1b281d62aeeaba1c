package pgcdc_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that a test started outlives it.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
