package main

import (
	"fmt"

	"pgmirror/test/harness"
)

// hybench is the write mix of HyBench, its TPClient's transactions 9 to 18 in PL/pgSQL with their weights. Where the original
// looks for a random loan in some state by a scan, this one draws numbers until it finds one; the rows written are the same.
// fresh_ts is the freshness column of the Retina paper's variant of the benchmark.
// https://github.com/Rucchao/HyBench-2023
//
//	 9 (7)  transfer between saving accounts            3 rows
//	10 (7)  a company pays its employees               84
//	11 (7)  transfer between checking accounts          3
//	12 (7)  loan application                            2
//	13 (6)  decision on one                             2
//	14 (4)  lending                                     2
//	15 (4)  delinquency                            0 or 1
//	16 (4)  repayment                              0 or 2
//	17, 18 (12 each)  between the two accounts of one   2
var hybench = workload{"HyBench", loadHyBench}

// employees of a company that are paid in one transaction, with which there are 10.3 row changes a transaction, as in the paper.
const employees = 28

// The rows at scale 1: those of HyBench at SF 1, but transfers and checkings so that all tables together have 10 million.
const (
	customerRows = 300_000
	companyRows  = 2_000
	accountRows  = customerRows + companyRows
	transferRows = 6_700_000
	checkingRows = 1_200_000
	loanRows     = 600_000 // loanapps and loantrans each
)

const hybenchSchema = `
CREATE TABLE customer (custid int PRIMARY KEY, companyid int, gender char(6), name char(15), age int, phone char(11), province char(15),
  city char(15), loan_balance real, saving_credit int, checking_credit int, loan_credit int, isblocked int, created_date date, last_update timestamp, fresh_ts timestamptz);
CREATE TABLE company (companyid int PRIMARY KEY, name varchar, category varchar, staff_size int, loan_balance real, phone varchar, province varchar,
  city varchar, saving_credit int, checking_credit int, loan_credit int, isblocked int, created_date date, last_update timestamp, fresh_ts timestamptz);
CREATE TABLE savingaccount (accountid int PRIMARY KEY, userid int, balance real, isblocked int, ts timestamp, fresh_ts timestamptz);
CREATE TABLE checkingaccount (accountid int PRIMARY KEY, userid int, balance real, isblocked int, ts timestamp, fresh_ts timestamptz);
CREATE TABLE transfer (id bigserial PRIMARY KEY, sourceid int, targetid int, amount real, type char(10), ts timestamp, fresh_ts timestamptz);
CREATE TABLE checking (id bigserial PRIMARY KEY, sourceid int, targetid int, amount real, type char(10), ts timestamp, fresh_ts timestamptz);
CREATE TABLE loanapps (id bigserial PRIMARY KEY, applicantid int, amount real, duration int, status char(12), ts timestamp, fresh_ts timestamptz);
CREATE TABLE loantrans (id bigserial PRIMARY KEY, applicantid int, appid bigint, amount real, status char(12), ts timestamp, duration int,
  contract_ts timestamp, delinquency int, fresh_ts timestamptz);
CREATE TABLE pings (id bigint PRIMARY KEY, ts timestamptz);
`

// hybenchWrite is over the number of accounts, of customers, and of employees paid.
const hybenchWrite = `
CREATE FUNCTION lend(who int, amt real, now timestamp) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF who <= %[2]d THEN
    UPDATE customer SET loan_balance = loan_balance - amt, last_update = now, fresh_ts = clock_timestamp() WHERE custid = who;
  ELSE
    UPDATE company SET loan_balance = loan_balance - amt, last_update = now, fresh_ts = clock_timestamp() WHERE companyid = who;
  END IF;
END $$;
CREATE FUNCTION save(who int, amt real, now timestamp) RETURNS void LANGUAGE sql AS
  $$ UPDATE savingaccount SET balance = balance + amt, ts = now, fresh_ts = clock_timestamp() WHERE accountid = who $$;
CREATE FUNCTION write(c int, n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  pick int := floor(random() * 70); a int; z int; high int; amt real := random() * 100; now timestamp := clock_timestamp(); loan record;
BEGIN
  IF pick < 7 THEN
    a := mine(c, n, 1, %[1]d); z := mine(c, n, 1, %[1]d);
    UPDATE savingaccount SET balance = balance - amt, ts = now, fresh_ts = clock_timestamp() WHERE accountid = a;
    UPDATE savingaccount SET balance = balance + amt, ts = now, fresh_ts = clock_timestamp() WHERE accountid = z;
    INSERT INTO transfer (sourceid, targetid, amount, type, ts, fresh_ts) VALUES (a, z, amt, 'transfer', now, clock_timestamp());
    RETURN 3;
  ELSIF pick < 14 THEN
    a := mine(c, n, %[2]d + 1, %[1]d);
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
  ELSIF pick < 45 THEN
    a := mine(c, n, 1, %[1]d);
    UPDATE savingaccount SET balance = balance - amt, ts = now, fresh_ts = clock_timestamp() WHERE accountid = a;
    UPDATE checkingaccount SET balance = balance + amt, ts = now, fresh_ts = clock_timestamp() WHERE accountid = a;
    RETURN 2;
  ELSIF pick < 52 THEN
    a := mine(c, n, 1, %[1]d);
    PERFORM lend(a, amt, now);
    INSERT INTO loanapps (applicantid, amount, duration, status, ts, fresh_ts) VALUES (a, amt, (ARRAY[30, 60, 90, 180, 365])[1 + a %% 5], 'under_review', now, clock_timestamp());
    RETURN 2;
  ELSIF pick < 58 THEN
    SELECT last_value INTO high FROM loanapps_id_seq;
    SELECT id, applicantid, amount, duration INTO loan FROM loanapps WHERE status = 'under_review'
      AND id = ANY (ARRAY(SELECT mine(c, n, 1, high) FROM generate_series(1, 10))) LIMIT 1;
    IF NOT FOUND THEN
      RETURN 0;
    END IF;
    IF random() < 0.5 THEN
      INSERT INTO loantrans (applicantid, appid, amount, status, ts, duration, delinquency, fresh_ts)
        VALUES (loan.applicantid, loan.id, loan.amount, 'accept', now, loan.duration, 0, clock_timestamp());
      UPDATE loanapps SET status = 'accept', ts = now, fresh_ts = clock_timestamp() WHERE id = loan.id;
    ELSE
      PERFORM lend(loan.applicantid, -loan.amount, now);
      UPDATE loanapps SET status = 'reject', ts = now, fresh_ts = clock_timestamp() WHERE id = loan.id;
    END IF;
    RETURN 2;
  END IF;
  SELECT last_value INTO high FROM loantrans_id_seq;
  SELECT id, applicantid, amount, contract_ts + duration * interval '1 day' < now AND delinquency = 0 AS overdue INTO loan FROM loantrans
    WHERE status = CASE WHEN pick < 62 THEN 'accept' ELSE 'lent' END AND id = ANY (ARRAY(SELECT mine(c, n, 1, high) FROM generate_series(1, 10))) LIMIT 1;
  IF NOT FOUND THEN
    RETURN 0;
  ELSIF pick < 62 THEN
    PERFORM save(loan.applicantid, loan.amount, now);
    UPDATE loantrans SET status = 'lent', contract_ts = now, ts = now, fresh_ts = clock_timestamp() WHERE id = loan.id;
    RETURN 2;
  ELSIF pick < 66 THEN
    IF NOT loan.overdue THEN
      RETURN 0;
    END IF;
    UPDATE loantrans SET delinquency = 1, ts = now, fresh_ts = clock_timestamp() WHERE id = loan.id;
    RETURN 1;
  END IF;
  PERFORM 1 FROM savingaccount WHERE accountid = loan.applicantid AND balance >= loan.amount;
  IF NOT FOUND THEN
    RETURN 0;
  END IF;
  PERFORM save(loan.applicantid, -loan.amount, now);
  UPDATE loantrans SET status = 'repaid', ts = now, fresh_ts = clock_timestamp() WHERE id = loan.id;
  RETURN 2;
END $$;
`

// hybenchPrune is over the numbers of transfers, checkings and loans.
const hybenchPrune = `
CREATE FUNCTION prune() RETURNS bigint LANGUAGE sql AS $$
  WITH a AS (DELETE FROM transfer WHERE id <= (SELECT last_value FROM transfer_id_seq) - %[1]d RETURNING 1),
    b AS (DELETE FROM checking WHERE id <= (SELECT last_value FROM checking_id_seq) - %[2]d RETURNING 1),
    c AS (DELETE FROM loanapps WHERE id <= (SELECT last_value FROM loanapps_id_seq) - %[3]d RETURNING 1),
    d AS (DELETE FROM loantrans WHERE id <= (SELECT last_value FROM loantrans_id_seq) - %[3]d RETURNING 1)
  SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM b) + (SELECT count(*) FROM c) + (SELECT count(*) FROM d)
$$
`

func loadHyBench(pg *harness.Postgres, schema string, scale float64) (rows int, err error) {
	customers, companies := scaled(customerRows, scale), scaled(companyRows, scale)+writers
	accounts := customers + companies
	transfers, checkings, loans := scaled(transferRows, scale), scaled(checkingRows, scale), scaled(loanRows, scale)
	const account = `INSERT INTO %s SELECT i, i, 2000 + i %% 7, (i %% 100 = 0)::int, '2024-01-01'::timestamp + i * interval '1 second', now() FROM generate_series(1, %d) i`
	const moved = `INSERT INTO %s SELECT i, 1 + i * 7919::bigint %% %[3]d, 1 + i * 104729::bigint %% %[3]d, i %% 1000 / 10.0, (ARRAY['transfer', 'red_packet', 'donate', 'invest'])[1 + i %% 4], '2024-01-01'::timestamp + i * interval '1 second', now() FROM generate_series(1, %[2]d) i`
	const duration = "(ARRAY[30, 60, 90, 180, 365])[1 + i %% 5]"
	err = pg.Exec(searchPath(schema), hybenchSchema, mine, fmt.Sprintf(hybenchWrite, accounts, customers, employees), fmt.Sprintf(hybenchPrune, transfers, checkings, loans), driver, "SELECT setseed(0.5)",
		fmt.Sprintf(`INSERT INTO customer SELECT i, 1 + i %% %d, 'female', 'name ' || i, 20 + i %% 60, '5550000000', 'province ' || i %% 30, 'city ' || i %% 300, 10000, i %% 3, i %% 5, i %% 7, 0, '2020-01-01'::date + i %% 1000, '2024-01-01', now() FROM generate_series(1, %d) i`, companies, customers),
		fmt.Sprintf(`INSERT INTO company SELECT %d + i, 'company ' || i, 'category ' || i %% 20, 150, 1000000, '5550000000', 'province ' || i %% 30, 'city ' || i %% 300, i %% 3, i %% 5, i %% 7, 0, '2020-01-01'::date + i %% 1000, '2024-01-01', now() FROM generate_series(1, %d) i`, customers, companies),
		fmt.Sprintf(account, "savingaccount", accounts), fmt.Sprintf(account, "checkingaccount", accounts),
		fmt.Sprintf(moved, "transfer", transfers, accounts), fmt.Sprintf(moved, "checking", checkings, accounts),
		fmt.Sprintf(`INSERT INTO loanapps SELECT i, 1 + i %% %d, i %% 5000, `+duration+`, (ARRAY['under_review', 'accept', 'reject'])[1 + i %% 3], '2024-01-01', now() FROM generate_series(1, %d) i`, accounts, loans),
		fmt.Sprintf(`INSERT INTO loantrans SELECT i, 1 + i %% %d, i, i %% 100, (ARRAY['accept', 'lent', 'repaid'])[1 + i %% 3], '2024-01-01', `+duration+`, '2024-01-01', 0, now() FROM generate_series(1, %d) i`, accounts, loans),
		fmt.Sprintf("SELECT setval('transfer_id_seq', %d), setval('checking_id_seq', %d), setval('loanapps_id_seq', %[3]d), setval('loantrans_id_seq', %[3]d)", transfers, checkings, loans),
		"ANALYZE")
	return 2*accounts + accounts + transfers + checkings + 2*loans, err
}
