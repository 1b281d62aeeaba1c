package main

import (
	"fmt"

	"pgmirror/test/harness"
)

// chbench is the write mix of CH-benCHmark, TPC-C's new order, payment and delivery in PL/pgSQL with their weights, one commit
// for each district of a delivery as in the Retina paper (13.5 row changes a transaction). Where the original finds a customer
// by his last name, this one draws his number; the rows written are the same. Items of an order come in one order, so that
// clients do not deadlock.
// https://www.tpc.org/tpc_documents_current_versions/pdf/tpc-c_v5.11.0.pdf, clause 2
//
//	new order (45)          3 rows and 2 for each of 5 to 15 items; one of 100 rolls back
//	payment (43)            4
//	delivery (4 × 10)       3 and one for each item
var chbench = workload{"CH-benCHmark", loadCHBench}

// The rows of a warehouse at scale 1 are TPC-C's: below it, customers and items are fewer.
const (
	warehouses = 4
	districts  = 10
	chItems    = 100_000 // and stock of each warehouse
	chOrders   = 3_000   // and customers, of each district
)

const chbenchSchema = `
CREATE TABLE warehouse (w_id int PRIMARY KEY, w_name varchar(10), w_street_1 varchar(20), w_street_2 varchar(20), w_city varchar(20), w_state char(2), w_zip char(9),
  w_tax numeric(4,4), w_ytd numeric(12,2));
CREATE TABLE district (d_w_id int, d_id int, d_name varchar(10), d_street_1 varchar(20), d_street_2 varchar(20), d_city varchar(20), d_state char(2), d_zip char(9),
  d_tax numeric(4,4), d_ytd numeric(12,2), d_next_o_id int, PRIMARY KEY (d_w_id, d_id));
CREATE TABLE customer (c_w_id int, c_d_id int, c_id int, c_first varchar(16), c_middle char(2), c_last varchar(16), c_street_1 varchar(20), c_street_2 varchar(20),
  c_city varchar(20), c_state char(2), c_zip char(9), c_phone char(16), c_since timestamp, c_credit char(2), c_credit_lim numeric(12,2), c_discount numeric(4,4),
  c_balance numeric(12,2), c_ytd_payment numeric(12,2), c_payment_cnt int, c_delivery_cnt int, c_data varchar(500), PRIMARY KEY (c_w_id, c_d_id, c_id));
CREATE TABLE history (h_c_id int, h_c_d_id int, h_c_w_id int, h_d_id int, h_w_id int, h_date timestamp, h_amount numeric(6,2), h_data varchar(24));
CREATE TABLE orders (o_w_id int, o_d_id int, o_id int, o_c_id int, o_entry_d timestamp, o_carrier_id int, o_ol_cnt int, o_all_local int, PRIMARY KEY (o_w_id, o_d_id, o_id));
CREATE TABLE new_order (no_w_id int, no_d_id int, no_o_id int, PRIMARY KEY (no_w_id, no_d_id, no_o_id));
CREATE TABLE order_line (ol_w_id int, ol_d_id int, ol_o_id int, ol_number int, ol_i_id int, ol_supply_w_id int, ol_delivery_d timestamp, ol_quantity int,
  ol_amount numeric(6,2), ol_dist_info char(24), PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));
CREATE TABLE item (i_id int PRIMARY KEY, i_im_id int, i_name varchar(24), i_price numeric(5,2), i_data varchar(50));
CREATE TABLE stock (s_w_id int, s_i_id int, s_quantity int, s_dist_01 char(24), s_dist_02 char(24), s_dist_03 char(24), s_dist_04 char(24), s_dist_05 char(24),
  s_dist_06 char(24), s_dist_07 char(24), s_dist_08 char(24), s_dist_09 char(24), s_dist_10 char(24), s_ytd int, s_order_cnt int, s_remote_cnt int, s_data varchar(50),
  PRIMARY KEY (s_w_id, s_i_id));
`

// chbenchWrite is over the numbers of warehouses, districts, items and customers of a district.
const chbenchWrite = `
CREATE FUNCTION nurand(a int, c int, low int, high int) RETURNS int LANGUAGE sql VOLATILE AS
  $$ SELECT ((floor(random() * (a + 1))::int | (low + floor(random() * (high - low + 1))::int)) + c) %% (high - low + 1) + low $$;
CREATE FUNCTION elsewhere(home int, part float) RETURNS int LANGUAGE sql VOLATILE AS
  $$ SELECT CASE WHEN random() < part THEN 1 + (home + floor(random() * (%[1]d - 1))::int) %% %[1]d ELSE home END $$;
CREATE FUNCTION new_order(w int, d int, now timestamp) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  o int; lines int := 5 + floor(random() * 11); number int := 0; line record; price numeric; info text;
BEGIN
  UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = w AND d_id = d RETURNING d_next_o_id - 1 INTO o;
  INSERT INTO orders VALUES (w, d, o, nurand(1023, 259, 1, %[4]d), now, NULL, lines, 1);
  INSERT INTO new_order VALUES (w, d, o);
  FOR line IN SELECT nurand(8191, 7911, 1, %[3]d) AS item, elsewhere(w, 0.01) AS supply FROM generate_series(1, lines) ORDER BY supply, item LOOP
    number := number + 1;
    SELECT i_price INTO price FROM item WHERE i_id = line.item;
    UPDATE stock SET s_quantity = s_quantity - 5 + CASE WHEN s_quantity > 15 THEN 0 ELSE 91 END, s_ytd = s_ytd + 5, s_order_cnt = s_order_cnt + 1,
      s_remote_cnt = s_remote_cnt + (line.supply <> w)::int WHERE s_w_id = line.supply AND s_i_id = line.item RETURNING s_dist_01 INTO info;
    INSERT INTO order_line VALUES (w, d, o, number, line.item, line.supply, NULL, 5, 5 * price, info);
  END LOOP;
  RETURN CASE WHEN random() < 0.01 THEN 0 ELSE 3 + 2 * lines END;
END $$;
CREATE FUNCTION payment(w int, d int, now timestamp) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  amount numeric(6,2) := 1 + random() * 4999; cw int := elsewhere(w, 0.15); cd int := d; cid int := nurand(1023, 259, 1, %[4]d);
BEGIN
  IF cw <> w THEN
    cd := 1 + floor(random() * %[2]d);
  END IF;
  UPDATE warehouse SET w_ytd = w_ytd + amount WHERE w_id = w;
  UPDATE district SET d_ytd = d_ytd + amount WHERE d_w_id = w AND d_id = d;
  UPDATE customer SET c_balance = c_balance - amount, c_ytd_payment = c_ytd_payment + amount, c_payment_cnt = c_payment_cnt + 1,
    c_data = CASE c_credit WHEN 'BC' THEN left(concat_ws(' ', cid, cd, cw, d, w, amount, c_data), 500) ELSE c_data END
    WHERE c_w_id = cw AND c_d_id = cd AND c_id = cid;
  INSERT INTO history VALUES (cid, cd, cw, d, w, now, amount, 'warehouse    district');
  RETURN 4;
END $$;
CREATE FUNCTION delivery(w int, d int, now timestamp) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  o int; customer_id int; lines int; total numeric;
BEGIN
  SELECT min(no_o_id) INTO o FROM new_order WHERE no_w_id = w AND no_d_id = d;
  IF o IS NULL THEN
    RETURN 0;
  END IF;
  DELETE FROM new_order WHERE no_w_id = w AND no_d_id = d AND no_o_id = o;
  UPDATE orders SET o_carrier_id = 1 + floor(random() * 10) WHERE o_w_id = w AND o_d_id = d AND o_id = o RETURNING o_c_id INTO customer_id;
  UPDATE order_line SET ol_delivery_d = now WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
  GET DIAGNOSTICS lines = ROW_COUNT;
  SELECT sum(ol_amount) INTO total FROM order_line WHERE ol_w_id = w AND ol_d_id = d AND ol_o_id = o;
  UPDATE customer SET c_balance = c_balance + total, c_delivery_cnt = c_delivery_cnt + 1 WHERE c_w_id = w AND c_d_id = d AND c_id = customer_id;
  RETURN 3 + lines;
END $$;
CREATE FUNCTION write(c int, n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  pick int := floor(random() * 128); w int := mine(c, n, 1, %[1]d + 1); d int := 1 + floor(random() * %[2]d); now timestamp := clock_timestamp();
BEGIN
  IF pick < 45 THEN
    RETURN new_order(w, d, now);
  ELSIF pick < 88 THEN
    RETURN payment(w, d, now);
  END IF;
  RETURN delivery(w, d, now);
END $$;
`

// chbenchPrune is over the number of orders of a district, and of rows of history. By the mix's weights fewer orders are delivered than come, so
// some that were not go too. history has no key, so that none of its rows can be deleted: when it is twice as large as it was, it is emptied.
const chbenchPrune = `
CREATE FUNCTION prune() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  pruned bigint;
BEGIN
  WITH a AS (DELETE FROM orders USING district WHERE o_w_id = d_w_id AND o_d_id = d_id AND o_id < d_next_o_id - %[1]d RETURNING o_w_id, o_d_id, o_id),
    b AS (DELETE FROM order_line USING a WHERE ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id RETURNING 1),
    c AS (DELETE FROM new_order USING a WHERE no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id RETURNING 1)
  SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM b) + (SELECT count(*) FROM c) INTO pruned;
  IF (SELECT count(*) FROM history) > 2 * %[2]d THEN
    TRUNCATE history;
  END IF;
  RETURN pruned;
END $$
`

func loadCHBench(pg *harness.Postgres, schema string, scale float64) (rows int, err error) {
	items, orders := scaled(chItems, min(1, scale)), scaled(chOrders, min(1, scale))
	items, orders = max(items, 1000), max(orders, 100)
	const address = `'street ' || i, 'apartment ' || i, 'city ' || i % 100, 'CA', lpad(i::text, 9, '1')`
	all := fmt.Sprintf("generate_series(1, %d) w, generate_series(1, %d) d, generate_series(1, %d) i", warehouses, districts, orders)
	delivered := orders * 7 / 10
	err = pg.Exec(searchPath(schema), chbenchSchema, mine, fmt.Sprintf(chbenchWrite, warehouses, districts, items, orders), fmt.Sprintf(chbenchPrune, orders, warehouses*districts*orders), driver, "SELECT setseed(0.5)",
		fmt.Sprintf("INSERT INTO warehouse SELECT i, 'house ' || i, %s, 0.1, 300000 FROM generate_series(1, %d) i", address, warehouses),
		fmt.Sprintf("INSERT INTO district SELECT w, i, 'district', %s, 0.1, 30000, %d + 1 FROM generate_series(1, %d) w, generate_series(1, %d) i", address, orders, warehouses, districts),
		fmt.Sprintf("INSERT INTO item SELECT i, i %% 10000, 'item ' || i, 1 + i %% 100, 'data of item ' || i FROM generate_series(1, %d) i", items),
		fmt.Sprintf(`INSERT INTO stock SELECT w, i, 10 + i %% 90, 'd1 ' || i, 'd2 ' || i, 'd3 ' || i, 'd4 ' || i, 'd5 ' || i, 'd6 ' || i, 'd7 ' || i, 'd8 ' || i, 'd9 ' || i, 'd10 ' || i, 0, 0, 0,
			'stock data ' || i FROM generate_series(1, %d) w, generate_series(1, %d) i`, warehouses, items),
		fmt.Sprintf(`INSERT INTO customer SELECT w, d, i, 'first ' || i, 'OE', 'last ' || i %% 1000, %s, '555', '2024-01-01', CASE WHEN i %% 10 = 0 THEN 'BC' ELSE 'GC' END, 50000, 0.1, -10, 10, 1, 0,
			repeat('customer data ', 30) FROM %s`, address, all),
		fmt.Sprintf("INSERT INTO history SELECT i, d, w, d, w, '2024-01-01', 10, 'history' FROM %s", all),
		fmt.Sprintf("INSERT INTO orders SELECT w, d, i, 1 + i * 7919 %% %d, '2024-01-01', CASE WHEN i <= %d THEN 1 + i %% 10 END, 10, 1 FROM %s", orders, delivered, all),
		fmt.Sprintf("INSERT INTO new_order SELECT w, d, i FROM %s WHERE i > %d", all, delivered),
		fmt.Sprintf("INSERT INTO order_line SELECT w, d, i, l, 1 + (i * 7919 + l * 104729) %% %d, w, '2024-01-01', 5, i %% 100, 'dist info' FROM %s, generate_series(1, 10) l", items, all),
		"ANALYZE")
	district := 1 + orders*(1+1+1+10) + orders - delivered // customers, history, orders and their lines; new orders
	return items + warehouses*(1+items+districts*district), err
}
