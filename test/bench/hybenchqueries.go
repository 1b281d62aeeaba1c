package main

import (
	"fmt"
	"strings"
)

// hybenchQuestions are HyBench's thirteen analytical ones in our words and over our columns, for customer {a} and company {c}.
var hybenchQuestions = []string{
	// 1: whom somebody paid, and by whom he was paid
	"SELECT sourceid, targetid, sourceid = {a} AS outbound, sum(amount) AS total FROM transfer WHERE sourceid = {a} OR targetid = {a} GROUP BY ALL ORDER BY total DESC",
	// 2: somebody's loans
	"SELECT a.ts, a.amount, t.ts, t.amount, t.status FROM customer c JOIN loanapps a ON a.applicantid = c.custid JOIN loantrans t ON t.appid = a.id WHERE c.custid = {a}",
	// 3, 4: somebody's income and expense
	"SELECT custid, name, phone, sum(amount) FROM customer JOIN (SELECT targetid, amount FROM transfer UNION ALL SELECT targetid, amount FROM checking) ON targetid = custid WHERE custid = {a} GROUP BY ALL",
	"SELECT custid, name, phone, sum(amount) FROM customer JOIN (SELECT sourceid, amount FROM transfer UNION ALL SELECT sourceid, amount FROM checking) ON sourceid = custid WHERE custid = {a} GROUP BY ALL",
	// 5: what a company's people earn
	"SELECT custid, sum(amount) AS paid FROM customer JOIN transfer ON targetid = custid WHERE sourceid = {c} AND type LIKE 'salary%' GROUP BY custid ORDER BY paid DESC",
	// 6: what some companies spend, of both accounts
	"SELECT sourceid, spent, sum(c.amount) AS checked FROM (SELECT sourceid, sum(amount) AS spent FROM transfer JOIN company ON companyid = sourceid WHERE name LIKE 'company 1%' GROUP BY sourceid) " +
		"JOIN checking c USING (sourceid) GROUP BY ALL ORDER BY spent DESC, checked DESC",
	// 7: the largest payments between a company and customers, salaries left out
	"SELECT sourceid, targetid, type, sum(amount) AS total FROM (SELECT sourceid, targetid, type, amount FROM transfer UNION ALL SELECT sourceid, targetid, type, amount FROM checking) " +
		"WHERE (sourceid = {c} OR targetid = {c}) AND type NOT LIKE 'salary%' AND sourceid + targetid - {c} IN (SELECT custid FROM customer) GROUP BY ALL ORDER BY total DESC LIMIT 10",
	// 8: with whom a hundred blocked customers dealt
	"WITH blocked AS (SELECT name, custid FROM customer c JOIN savingaccount s ON s.userid = c.custid WHERE c.isblocked = 1 OR s.isblocked = 1 ORDER BY custid LIMIT 100) " +
		"SELECT name, sourceid, targetid, sum(amount) AS total FROM blocked JOIN (SELECT sourceid AS custid, * FROM (SELECT sourceid, targetid, amount FROM transfer UNION ALL SELECT sourceid, targetid, amount FROM checking) " +
		"UNION ALL SELECT targetid, * FROM (SELECT sourceid, targetid, amount FROM transfer UNION ALL SELECT sourceid, targetid, amount FROM checking)) USING (custid) GROUP BY ALL ORDER BY total DESC",
	// 9: the income of companies that applied for a loan and did not get one
	"SELECT name, sum(amount) AS revenue FROM company JOIN transfer ON targetid = companyid WHERE companyid IN (SELECT applicantid FROM loanapps WHERE ts >= TIMESTAMP '2024-01-01') " +
		"AND companyid NOT IN (SELECT applicantid FROM loantrans WHERE ts >= TIMESTAMP '2024-02-01') GROUP BY name ORDER BY revenue DESC",
	// 10: what is left to the receivers of the ten largest transfers of two months
	"WITH got AS (SELECT targetid AS custid, max(amount) AS amount FROM transfer WHERE ts BETWEEN TIMESTAMP '2024-01-01' AND TIMESTAMP '2024-03-01' GROUP BY targetid ORDER BY amount DESC, custid LIMIT 10) " +
		"SELECT custid, name, max(got.amount) - sum(t.amount) AS rest FROM got JOIN customer USING (custid) JOIN transfer t ON t.sourceid = custid WHERE t.ts BETWEEN TIMESTAMP '2024-01-01' AND TIMESTAMP '2024-03-01' GROUP BY ALL ORDER BY rest DESC",
	// 11: who invests in companies of some kinds, with both accounts and loans
	"SELECT co.companyid, cu.custid, sum(t.amount) AS invested, count(*) AS n, avg(sa.balance), avg(ca.balance), avg(la.amount) FROM company co JOIN transfer t ON t.targetid = co.companyid JOIN customer cu ON cu.custid = t.sourceid " +
		"JOIN savingaccount sa ON sa.userid = cu.custid JOIN checkingaccount ca ON ca.userid = cu.custid JOIN loanapps la ON la.applicantid = cu.custid WHERE t.type LIKE 'invest%' AND sa.balance > 1000 AND ca.balance > 1000 " +
		"AND co.category IN ('category 1', 'category 2', 'category 3') GROUP BY co.companyid, cu.custid ORDER BY invested DESC, n DESC",
	// 12: how many loans companies of a kind are granted
	"SELECT companyid, count(*) FILTER (lt.status LIKE 'accept%') * 100.0 / count(*) AS granted FROM company JOIN loanapps la ON la.applicantid = companyid JOIN loantrans lt ON lt.applicantid = companyid " +
		"WHERE category = 'category 1' GROUP BY companyid ORDER BY granted DESC, companyid LIMIT 10",
	// 13: somebody's payments, ranked in each province
	"SELECT sourceid, targetid, province, amount, rank() OVER (PARTITION BY province ORDER BY amount DESC) FROM transfer JOIN customer ON custid = targetid WHERE sourceid = {a}",
}

// hybenchQuestionsAt are they over tables of a scale.
func hybenchQuestionsAt(scale float64) (questions []named) {
	customers := scaled(customerRows, scale)
	put := strings.NewReplacer("{a}", fmt.Sprint(customers/2), "{c}", fmt.Sprint(customers+1))
	for i, q := range hybenchQuestions {
		questions = append(questions, named{fmt.Sprintf("AP-%d", i+1), put.Replace(q)})
	}
	return questions
}
