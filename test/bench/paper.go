package main

// paperIntroduction stands above the table of the part paper.
const paperIntroduction = `## The Retina paper's figures

Written by ` + "`make bench-paper`" + `, in about half an hour: what the Retina paper reports and the table above has not. As there, each ratio is to something measured in the
same run, to and fro (A B B A …); numbers are medians, with the smallest and the largest of the rounds in parentheses, and "reached" says how
many times a figure is beyond what is to reach. The paper measures on machines of 16 cores, with files in S3, at HyBench's scale 1333 or TPC-H's
100; here everything is on one machine, in local files, at most at HyBench's scale 1. What else differs stands in the last column. A scale below 1
makes the tables smaller and the steady writing shorter.

`
