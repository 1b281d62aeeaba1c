package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// dropPublication removes exactly the named publication; an absent one is reported, not an error.
func dropPublication(ctx context.Context, conn *pgx.Conn, name string) (found bool, err error) {
	_, err = conn.Exec(ctx, "DROP PUBLICATION "+pgx.Identifier{name}.Sanitize())
	if hasState(err, "42704") { // undefined_object
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("drop publication %s: %w", name, err)
	}
	return true, nil
}

// hasState says whether err is the server's, with this SQLSTATE.
func hasState(err error, state string) bool {
	var server interface{ SQLState() string }
	return errors.As(err, &server) && server.SQLState() == state
}
