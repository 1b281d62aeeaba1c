package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"pgmirror/test/harness"
)

// The write mix of HyBench (NOTES of its TPClient: transactions 9 to 18) in PL/pgSQL, reduced to the five whose rows it
// consists of: a transfer between two saving accounts (3 rows), a company paying 28 of its employees (84 rows), a transfer
// between checking accounts (3 rows), a loan application (2 rows, in the place of transactions 12 to 16) and a move between
// the two accounts of one owner (2 rows). Weighted as there it is 10.4 rows a transaction, 7 of 10 updates.
// fresh_ts is the freshness column of the Retina paper's variant of the benchmark.
const employees = 28

// The rows at scale 1: accounts as in HyBench at SF 1, transfers so that all tables together have 10 million.
const (
	customerRows = 300_000
	companyRows  = 2_000
	accountRows  = customerRows + companyRows
	transferRows = 7_000_000
	checkingRows = 1_500_000
	loanRows     = 600_000
)

const schema = `
CREATE TABLE customer (custid int PRIMARY KEY, companyid int, gender char(6), name char(15), age int, phone char(11), province char(15),
  loan_balance real, isblocked int, created_date date, last_update timestamp, fresh_ts timestamptz);
CREATE TABLE savingaccount (accountid int PRIMARY KEY, userid int, balance real, isblocked int, ts timestamp, fresh_ts timestamptz);
CREATE TABLE checkingaccount (accountid int PRIMARY KEY, userid int, balance real, isblocked int, ts timestamp, fresh_ts timestamptz);
CREATE TABLE transfer (id bigserial PRIMARY KEY, sourceid int, targetid int, amount real, type char(10), ts timestamp, fresh_ts timestamptz);
CREATE TABLE checking (id bigserial PRIMARY KEY, sourceid int, targetid int, amount real, type char(10), ts timestamp, fresh_ts timestamptz);
CREATE TABLE loanapps (id bigserial PRIMARY KEY, applicantid int, amount real, duration int, status char(12), ts timestamp, fresh_ts timestamptz);
CREATE TABLE pings (id bigint PRIMARY KEY, ts timestamptz);
`

// write is one transaction of the mix by client c of n; each client has accounts of its own, so that none waits for another.
const functions = `
CREATE FUNCTION mine(c int, n int, low int, high int) RETURNS int LANGUAGE sql VOLATILE AS
  $$ SELECT low + c + n * floor(random() * ((high - low - c) / n))::int $$;
CREATE FUNCTION write(c int, n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  pick int := floor(random() * 70); a int; z int; amt real := random() * 100; now timestamp := clock_timestamp();
BEGIN
  IF pick < 7 THEN
    a := mine(c, n, 1, %[1]d); z := mine(c, n, 1, %[1]d);
    UPDATE savingaccount SET balance = balance - amt, ts = now, fresh_ts = clock_timestamp() WHERE accountid = a;
    UPDATE savingaccount SET balance = balance + amt, ts = now, fresh_ts = clock_timestamp() WHERE accountid = z;
    INSERT INTO transfer (sourceid, targetid, amount, type, ts, fresh_ts) VALUES (a, z, amt, 'transfer', now, clock_timestamp());
    RETURN 3;
  ELSIF pick < 14 THEN
    a := mine(c, n, %[2]d, %[1]d);
    FOR i IN 1..%[3]d LOOP
      z := mine(c, n, 1, %[2]d);
      UPDATE savingaccount SET balance = balance - amt, ts = now, fresh_ts = clock_timestamp() WHERE accountid = a;
      UPDATE savingaccount SET balance = balance + amt, ts = now, fresh_ts = clock_timestamp() WHERE accountid = z;
      INSERT INTO transfer (sourceid, targetid, amount, type, ts, fresh_ts) VALUES (a, z, amt, 'salary', now, clock_timestamp());
    END LOOP;
    RETURN 3 * %[3]d;
  ELSIF pick < 21 THEN
    a := mine(c, n, 1, %[1]d); z := mine(c, n, 1, %[1]d);
    UPDATE checkingaccount SET balance = balance - amt, ts = now, fresh_ts = clock_timestamp() WHERE accountid = a;
    UPDATE checkingaccount SET balance = balance + amt, ts = now, fresh_ts = clock_timestamp() WHERE accountid = z;
    INSERT INTO checking (sourceid, targetid, amount, type, ts, fresh_ts) VALUES (a, z, amt, 'service', now, clock_timestamp());
    RETURN 3;
  ELSIF pick < 46 THEN
    a := mine(c, n, 1, %[2]d);
    UPDATE customer SET loan_balance = loan_balance - amt, last_update = now, fresh_ts = clock_timestamp() WHERE custid = a;
    INSERT INTO loanapps (applicantid, amount, duration, status, ts, fresh_ts) VALUES (a, amt, 30, 'under_review', now, clock_timestamp());
    RETURN 2;
  END IF;
  a := mine(c, n, 1, %[1]d);
  UPDATE savingaccount SET balance = balance - amt, ts = now, fresh_ts = clock_timestamp() WHERE accountid = a;
  UPDATE checkingaccount SET balance = balance + amt, ts = now, fresh_ts = clock_timestamp() WHERE accountid = a;
  RETURN 2;
END $$;
CREATE PROCEDURE write_rows(c int, n int, INOUT wanted int) LANGUAGE plpgsql AS $$
DECLARE
  rows int := 0;
BEGIN
  WHILE rows < wanted LOOP
    rows := rows + write(c, n);
    COMMIT;
  END LOOP;
  wanted := rows;
END $$;
`

// loadBank fills the tables, at a scale, and publishes them.
func loadBank(pg *harness.Postgres, scale float64) (rows int, err error) {
	accounts, customers := scaled(accountRows, scale), scaled(customerRows, scale)
	sizes := []int{customers, accounts, accounts, scaled(transferRows, scale), scaled(checkingRows, scale), scaled(loanRows, scale)}
	for _, n := range sizes {
		rows += n
	}
	const account = `INSERT INTO %s SELECT i, i, 2000 + i %% 7, (i %% 100 = 0)::int, '2024-01-01'::timestamp + i * interval '1 second', now() FROM generate_series(1, %d) i`
	const moved = `INSERT INTO %s SELECT i, 1 + i * 7919::bigint %% %[3]d, 1 + i * 104729::bigint %% %[3]d, i %% 1000 / 10.0, (ARRAY['transfer', 'red_packet', 'donate', 'invest'])[1 + i %% 4], '2024-01-01'::timestamp + i * interval '1 second', now() FROM generate_series(1, %[2]d) i`
	return rows, pg.Exec(schema, fmt.Sprintf(functions, accounts, customers, employees), "SELECT setseed(0.5)",
		fmt.Sprintf(`INSERT INTO customer SELECT i, 1 + i %% %d, 'female', 'name ' || i, 20 + i %% 60, '5550000000', 'province ' || i %% 30, 10000, 0, '2020-01-01'::date + i %% 1000, '2024-01-01', now() FROM generate_series(1, %d) i`, scaled(companyRows, scale), customers),
		fmt.Sprintf(account, "savingaccount", accounts), fmt.Sprintf(account, "checkingaccount", accounts),
		fmt.Sprintf(moved, "transfer", sizes[3], accounts), fmt.Sprintf(moved, "checking", sizes[4], accounts),
		fmt.Sprintf(`INSERT INTO loanapps SELECT i, 1 + i %% %d, i %% 5000, 30, 'accept', '2024-01-01', now() FROM generate_series(1, %d) i`, customers, sizes[5]),
		fmt.Sprintf("SELECT setval('transfer_id_seq', %d), setval('checking_id_seq', %d), setval('loanapps_id_seq', %d)", sizes[3], sizes[4], sizes[5]),
		"ANALYZE", "CREATE PUBLICATION "+publication+" FOR ALL TABLES", "CHECKPOINT")
}

// writers is how many connections write the mix at once.
const writers = 2

// writeBacklog writes about rows row changes as fast as the source takes them and says how many there are.
func writeBacklog(ctx context.Context, pg *harness.Postgres, rows int) (written int, err error) {
	group, ctx := errgroup.WithContext(ctx)
	counts := make([]int, writers)
	for c := range writers {
		group.Go(func() error {
			conn, err := pgx.Connect(ctx, pg.URL("postgres", "postgres"))
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			// Waiting for the WAL at each of 100,000 commits would only take longer.
			if _, err := conn.Exec(ctx, "SET synchronous_commit = off"); err != nil {
				return err
			}
			return conn.QueryRow(ctx, fmt.Sprintf("CALL write_rows(%d, %d, %d)", c, writers, rows/writers)).Scan(&counts[c])
		})
	}
	if err := group.Wait(); err != nil {
		return 0, fmt.Errorf("write a backlog: %w", err)
	}
	for _, n := range counts {
		written += n
	}
	return written, nil
}
