package main

import "fmt"

// tables are the shop's, in the order in which they are compared.
var tables = []table{
	{"customers", []column{{"id", plain}, {"name", plain}, {"email", plain}, {"tags", list}, {"created", instant}, {"profile", plain}}},
	{"products", []column{{"id", plain}, {"sku", plain}, {"price", plain}, {"stock", plain}, {"description", plain}}},
	{"orders", []column{{"id", plain}, {"customer_id", plain}, {"status", plain}, {"total", plain}, {"placed", instant}, {"note", plain}}},
	{"order_items", []column{{"order_id", plain}, {"line", plain}, {"product_id", plain}, {"quantity", plain}, {"price", plain}}},
	{"stock_moves", []column{{"product_id", plain}, {"delta", plain}, {"reason", plain}}},
	{"pings", []column{{"id", plain}}},
}

type table struct {
	name    string
	columns []column
}

type column struct {
	name string
	kind kind
}

// kind says how a value is written so that PostgreSQL and DuckDB write it alike.
type kind int

const (
	plain   kind = iota // both write the same text
	instant             // microseconds since 1970
	list                // as JSON
)

// schema is the shop: foreign keys, an enum, exact numbers, JSON, an array, a large text that is stored out of line, and a
// table without a key, in which equal rows stand beside each other.
const schema = `
CREATE TYPE order_status AS ENUM ('new', 'paid', 'shipped', 'cancelled');
CREATE TABLE customers (
	id bigint PRIMARY KEY, name text NOT NULL, email text UNIQUE, tags text[], created timestamptz NOT NULL DEFAULT clock_timestamp(), profile jsonb);
CREATE TABLE products (
	id int PRIMARY KEY, sku varchar(20) NOT NULL, price numeric(10,2) NOT NULL, stock int NOT NULL, description text);
ALTER TABLE products ALTER COLUMN description SET STORAGE EXTERNAL;
CREATE TABLE orders (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, customer_id bigint NOT NULL REFERENCES customers,
	status order_status NOT NULL DEFAULT 'new', total numeric(12,2) NOT NULL, placed timestamptz NOT NULL DEFAULT clock_timestamp(), note json);
CREATE TABLE order_items (
	order_id bigint REFERENCES orders ON DELETE CASCADE, line int, product_id int NOT NULL REFERENCES products,
	quantity int NOT NULL, price numeric(10,2) NOT NULL, PRIMARY KEY (order_id, line));
CREATE TABLE stock_moves (product_id int, delta int, reason text);
ALTER TABLE stock_moves REPLICA IDENTITY FULL;
CREATE TABLE pings (id bigint PRIMARY KEY);`

// Sizes of the shop before anything is mirrored.
const (
	customerCount = 5_000
	productCount  = 500
	orderCount    = 20_000
)

var firstRows = []string{
	fmt.Sprintf(`INSERT INTO customers SELECT i, 'Customer ' || i, 'c' || i || '@example.com',
		CASE i %% 4 WHEN 0 THEN NULL WHEN 1 THEN '{}' WHEN 2 THEN ARRAY['new', NULL, 'a "b"'] ELSE ARRAY['gold'] END,
		'2025-01-01'::timestamptz + i * interval '1 minute 1.000001 second', jsonb_build_object('level', i %% 7) FROM generate_series(1, %d) i`, customerCount),
	fmt.Sprintf(`INSERT INTO products SELECT i, 'SKU-' || i, (i * 37 %% 10000) / 100.0, 1000, CASE WHEN i %% 10 = 0 THEN repeat(md5(i::text), 250) END
		FROM generate_series(1, %d) i`, productCount),
	fmt.Sprintf(`INSERT INTO orders (customer_id, total, note) SELECT 1 + i * 7 %% %d, i %% 500 + 0.99, json_build_object('n', i) FROM generate_series(1, %d) i`, customerCount, orderCount),
	fmt.Sprintf(`INSERT INTO order_items SELECT o.id, l, 1 + (o.id * l) %% %d, l, 9.99 FROM orders o, generate_series(1, 3) l`, productCount),
	`INSERT INTO stock_moves SELECT 1 + i % 50, i % 3, 'delivery' FROM generate_series(1, 2000) i`,
	`ANALYZE`,
}

// makeShop creates the database, its first rows, the publication, and a role that may read and replicate and nothing else.
func (d *demo) makeShop() error {
	d.say("creating a shop: %d customers, %d products, %d orders with %d items", customerCount, productCount, orderCount, 3*orderCount)
	if err := d.pg.Exec("CREATE DATABASE shop"); err != nil {
		return err
	}
	if err := d.pg.ExecIn("shop", append([]string{schema}, firstRows...)...); err != nil {
		return err
	}
	if err := d.pg.CreateMirrorRole("mirror", "shop"); err != nil {
		return err
	}
	return d.pg.ExecIn("shop", "CREATE PUBLICATION shop FOR TABLE customers, products, orders, order_items, stock_moves, pings")
}
