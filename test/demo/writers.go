package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// writerCount connections write at once.
const writerCount = 4

// errRolledBack ends a transaction that is meant to leave nothing.
var errRolledBack = errors.New("rolled back on purpose")

// write changes the shop until ctx ends, each change a transaction over one or several tables.
func (d *demo) write(ctx context.Context, seed uint64, commits *atomic.Int64) error {
	conn, err := pgx.Connect(ctx, d.pg.URL("postgres", "shop"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	random := rand.New(rand.NewPCG(seed, 1))
	for ctx.Err() == nil {
		change := changes[random.IntN(len(changes))]
		err := pgx.BeginFunc(context.WithoutCancel(ctx), conn, func(tx pgx.Tx) error {
			return change(context.WithoutCancel(ctx), tx, random)
		})
		var refused *pgconn.PgError
		switch {
		case err == nil:
			commits.Add(1)
		case errors.Is(err, errRolledBack):
		case errors.As(err, &refused) && (refused.Code == "40P01" || refused.Code == "23503"): // a deadlock, a customer or product just gone
		default:
			return fmt.Errorf("write: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(random.IntN(8)) * time.Millisecond):
		}
	}
	return nil
}

// changes are what happens in the shop; those that stand twice happen twice as often.
var changes = []func(context.Context, pgx.Tx, *rand.Rand) error{
	placeOrder, placeOrder, placeOrder, payOrder, payOrder, shipOrder, cancelOrder, changePrice, changeCustomer, newCustomer, dropCustomer, moveStock, abandon,
}

// placeOrder writes four tables in one transaction.
func placeOrder(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
	var id int64
	err := tx.QueryRow(ctx, `INSERT INTO orders (customer_id, total, note) VALUES ($1, 0, '{"by": "demo"}') RETURNING id`, 1+random.IntN(customerCount)).Scan(&id)
	if err != nil {
		return err
	}
	products := make([]int, 1+random.IntN(5))
	for i := range products {
		products[i] = 1 + random.IntN(productCount)
	}
	slices.Sort(products) // all lock products in one order
	for line, product := range slices.Compact(products) {
		quantity := 1 + random.IntN(4)
		for _, sql := range []string{
			`INSERT INTO order_items SELECT $1::bigint, $2::int, id, $4::int, price FROM products WHERE id = $3::int`,
			`UPDATE products SET stock = stock - $4::int WHERE id = $3::int AND $1::bigint > 0 AND $2::int >= 0`,
			`INSERT INTO stock_moves SELECT $3::int, -$4::int, 'order' WHERE $1::bigint > 0 AND $2::int >= 0`,
		} {
			if _, err := tx.Exec(ctx, sql, id, line, product, quantity); err != nil {
				return err
			}
		}
	}
	_, err = tx.Exec(ctx, `UPDATE orders SET total = (SELECT sum(quantity * price) FROM order_items WHERE order_id = $1) WHERE id = $1`, id)
	return err
}

func payOrder(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
	_, err := tx.Exec(ctx, `UPDATE orders SET status = 'paid', note = json_build_object('paid', clock_timestamp()) WHERE status = 'new' AND id BETWEEN $1::int AND $1::int + 2`, random.IntN(orderCount))
	return err
}

func shipOrder(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
	_, err := tx.Exec(ctx, `UPDATE orders SET status = 'shipped' WHERE status = 'paid' AND id BETWEEN $1::int AND $1::int + 50`, random.IntN(orderCount))
	return err
}

// cancelOrder deletes an order, and by its foreign key the items.
func cancelOrder(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
	_, err := tx.Exec(ctx, `DELETE FROM orders WHERE id = $1`, random.IntN(orderCount))
	return err
}

// changePrice leaves the description, which for some products is stored out of line and does not come again.
func changePrice(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
	_, err := tx.Exec(ctx, `UPDATE products SET price = price + 0.01 WHERE id = $1`, 10*(1+random.IntN(productCount/10)))
	return err
}

func changeCustomer(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
	_, err := tx.Exec(ctx, `UPDATE customers SET tags = array_append(tags[1:3], $2::text), profile = profile || '{"seen": true}' WHERE id = $1`,
		1+random.IntN(customerCount), fmt.Sprintf("tag %d", random.IntN(100)))
	return err
}

// newCustomer inserts, changes and changes the key of one row in one transaction.
func newCustomer(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
	id := 1_000_000 + random.Int64N(1<<40)
	for _, sql := range []string{
		`INSERT INTO customers (id, name) VALUES ($1::bigint, 'Newcomer')`,
		`UPDATE customers SET email = id || '@example.org' WHERE id = $1::bigint`,
		`UPDATE customers SET id = id + 1 WHERE id = $1::bigint`,
	} {
		if _, err := tx.Exec(ctx, sql, id); err != nil {
			return err
		}
	}
	return nil
}

func dropCustomer(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
	_, err := tx.Exec(ctx, `DELETE FROM customers WHERE id = (SELECT id FROM customers WHERE id >= 1000000 + $1::bigint ORDER BY id LIMIT 1)`, random.Int64N(1<<40))
	return err
}

// moveStock works on a table without a key: some rows are equal, and one of them is deleted or changed.
func moveStock(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
	sql := `DELETE FROM stock_moves WHERE ctid = (SELECT ctid FROM stock_moves WHERE product_id = $1 LIMIT 1)`
	if random.IntN(2) == 0 {
		sql = `UPDATE stock_moves SET reason = 'counted' WHERE ctid = (SELECT ctid FROM stock_moves WHERE product_id = $1 LIMIT 1)`
	}
	_, err := tx.Exec(ctx, sql, 1+random.IntN(50))
	return err
}

func abandon(ctx context.Context, tx pgx.Tx, random *rand.Rand) error {
	if err := placeOrder(ctx, tx, random); err != nil {
		return err
	}
	return errRolledBack
}
