package pgcdc

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// maxIdle is how many connections are kept for the next catalogue question: one for looks, one for wait points.
const maxIdle = 2

// defaultPingPatience is how long a connection that was not used for a while has to answer. One that a middlebox has forgotten says nothing for a quarter of
// an hour.
const defaultPingPatience = 10 * time.Second

// connPool keeps a few connections open between uses: at most so many as most says.
type connPool struct {
	open     func(context.Context) (*pgconn.PgConn, error)
	most     int
	patience time.Duration // with a kept connection

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

// take returns an unused connection that still answers, or a new one.
func (p *connPool) take(ctx context.Context) (*pgconn.PgConn, error) {
	for {
		p.lock.Lock()
		if len(p.conns) == 0 {
			p.lock.Unlock()
			return p.open(ctx)
		}
		conn := p.conns[len(p.conns)-1]
		p.conns = p.conns[:len(p.conns)-1]
		p.lock.Unlock()
		limited, cancel := context.WithTimeout(ctx, p.patience)
		err := conn.Ping(limited)
		cancel()
		if err == nil {
			return conn, nil
		}
		closeConn(conn) // the server was restarted, say
	}
}

func (p *connPool) put(conn *pgconn.PgConn) {
	p.lock.Lock()
	if len(p.conns) < p.most {
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
