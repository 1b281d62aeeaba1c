package pgcdc

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// maxIdle is how many connections are kept for the next catalogue question: one for looks, one for wait points.
const maxIdle = 2

// connPool keeps a few connections open between catalogue questions. Its zero value with open set is ready.
type connPool struct {
	open func(context.Context) (*pgconn.PgConn, error)

	lock  sync.Mutex
	conns []*pgconn.PgConn // unused ones
}

// with lends a connection to f. After an error of f the connection is closed, because f may have left a transaction
// open, and so are all unused ones, because what broke it may have broken them.
func (p *connPool) with(ctx context.Context, f func(*pgconn.PgConn) error) error {
	conn, err := p.take(ctx)
	if err != nil {
		return err
	}
	if err := f(conn); err != nil {
		closeConn(conn)
		p.close()
		return err
	}
	p.put(conn)
	return nil
}

func (p *connPool) take(ctx context.Context) (*pgconn.PgConn, error) {
	p.lock.Lock()
	if n := len(p.conns); n > 0 {
		conn := p.conns[n-1]
		p.conns = p.conns[:n-1]
		p.lock.Unlock()
		return conn, nil
	}
	p.lock.Unlock()
	return p.open(ctx)
}

func (p *connPool) put(conn *pgconn.PgConn) {
	p.lock.Lock()
	if len(p.conns) < maxIdle {
		p.conns = append(p.conns, conn)
		conn = nil
	}
	p.lock.Unlock()
	if conn != nil {
		closeConn(conn)
	}
}

// close closes the unused connections.
func (p *connPool) close() {
	p.lock.Lock()
	conns := p.conns
	p.conns = nil
	p.lock.Unlock()
	for _, conn := range conns {
		closeConn(conn)
	}
}
