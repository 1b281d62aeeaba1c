package pgcdc

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// maxIdleCopies is how many connections are kept between two copies: more than run at once.
const maxIdleCopies = 64

// copyPool keeps the connections of copies while a snapshot is open: a new one, whose server process reads its catalogue caches first, costs more than
// the copy of a small table. When the last snapshot is closed, no copy comes soon and they go.
type copyPool struct {
	pool connPool

	lock      sync.Mutex
	snapshots int
}

// begin notes a snapshot; end is called once when it is closed.
func (p *copyPool) begin() (end func()) {
	p.lock.Lock()
	defer p.lock.Unlock()
	p.snapshots++
	return sync.OnceFunc(func() {
		p.lock.Lock()
		p.snapshots--
		last := p.snapshots == 0
		p.lock.Unlock()
		if last {
			p.pool.close()
		}
	})
}

// with lends a connection on which no transaction is open. It is kept only when f succeeds and a snapshot is still open.
func (p *copyPool) with(ctx context.Context, f func(*pgconn.PgConn) error) error {
	conn, err := p.pool.take(ctx)
	if err != nil {
		return err
	}
	if err := f(conn); err != nil {
		closeConn(conn)
		return err
	}
	p.lock.Lock()
	keep := p.snapshots > 0
	if keep {
		p.pool.put(conn)
	}
	p.lock.Unlock()
	if !keep {
		closeConn(conn)
	}
	return nil
}
