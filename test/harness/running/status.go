// Package running asks a `pgmirror run` how it does. It is apart from test/harness, which the packages that it needs use in their
// own tests.
package running

import (
	"context"
	"encoding/json"
	"fmt"

	"pgmirror/mirror"
	"pgmirror/readstate"
)

// Status is what `status --json` prints of the mirror on a data directory; an error says that nothing answers.
func Status(ctx context.Context, data string) (*mirror.Status, error) {
	client, err := readstate.Dial(ctx, data)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	document, err := client.Status(ctx)
	if err != nil {
		return nil, err
	}
	var status mirror.Status
	if err := json.Unmarshal(document, &status); err != nil {
		return nil, fmt.Errorf("status of %s: %w", data, err)
	}
	return &status, nil
}
