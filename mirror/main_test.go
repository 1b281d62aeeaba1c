package mirror

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain: when all tests have ended, so has every goroutine they started.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
