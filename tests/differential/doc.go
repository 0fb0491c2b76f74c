// Package differential compares Oncelog with Apache Kafka 4.4, answer by answer.
//
// Each file of testdata is a script of exact requests with what an Apache Kafka answered to them. The test runs the scripts
// against Oncelog and wants the same answers, byte for byte, but for what is everyone's own: names, ids, times, addresses.
// Java is needed only to record:
//
//	go test ./tests/differential                       compares
//	tests/differential/record HOST:PORT [SCRIPT...]    asks an Apache Kafka again, and writes what it answers
//	go test ./tests/differential -rewrite              writes what Oncelog answers, where it is said to differ
//	go test ./tests/differential -run Random -kafka HOST:PORT -random 100 -seed 1
//	                                                   asks both at once for random requests, to find what no script has
//
// # Scripts
//
// A step is a command, with lines that continue it indented, and below it the recorded answer up to a blank line:
//
//	Produce v3-13 Acks=-1 Topics=[Topic=%t Partitions=[Partition=0 Records=batch(a k:b)]]
//	----
//	v3-12: Topics=[Topic=%t Partitions=[Partition=0 BaseOffset=0]]
//	v13: Topics=[TopicID=#%t Partitions=[Partition=0 BaseOffset=0]]
//
// The request is named as kmsg names it, and so are its fields; those that are left out have kmsg's defaults. A list of
// structs is [fields; fields], a struct that is no list {fields}, text that is no plain word is in "quotes", null is null. A
// step that names several versions is run with each, and $v is the version; answers that are the same share a line. Answers
// show the fields that are not at their default.
//
// A second block, "---- differs NAME", is what Oncelog answers where it differs on purpose. The name is explained in
// docs/differences.md. It must differ: the step says so when it does not any more.
//
// Words in a request:
//
//	%name          a name of the script's own: no other script has it, and no earlier run had
//	#%topic        the id of a topic; #%topic~2 that of the second topic of this name; #1 an id that nobody has
//	$P1 $S1 $U1    the first producer id, fetch session and UUID that a broker made up and showed
//	now now+5000   milliseconds
//	batch(...)     a record batch of the words: value, key:value, null, x*600 (600 times x), key:value^header:value; options
//	               are pid epoch seq txn control codec ts deltas base leader max last count attrs n, crc=bad, cut (bytes that
//	               are left), tail (hex that follows), patch and late (offset:hex, before and after the CRC is made)
//	messages(0 a)  records in a format before batches
//	sub(t u)       the subscription of a consumer; rep(x,100) x a hundred times; hex(00ff) bytes; a+b one behind the other
//
// Before the command, "a:" runs it on connection a, whose client id is its name, and "a&" sends it there without waiting for
// the answer. Behind it, after " | ":
//
//	until /re/, while /re/    ask again, until the answer is so
//	unordered                 rows come in no order
//	mask FIELD...             values that are not compared
//	only FIELD /re/           leaves out the rows in which the field does not match; without: in which it does
//	timed 100ms               tells whether the answer took that long
//	for 500ms                 how long an answer is waited for
//	repeat 100                so many requests, pipelined; the answer is the last one's
//
// Other commands: wait a (the answer to what was sent on a), a: silent 100ms (nothing comes on a), a: connect Client=x, close,
// raw (a frame: Key, Version, Client, Tags, Body, Size, Frame), topic NAME PARTITIONS key=value... (makes one, and waits for
// it), settle TRANSACTIONAL-ID (waits until its markers are written), restart stop, restart kill, warm (waits until a fresh broker's
// coordinators are there).
//
// "broker own", or "broker key=value...", gives the script a broker of its own with these settings; the others share one and
// run at the same time. "let NAME TEXT" lets $NAME stand for a text, "for NAME in ITEMS ... end" runs steps for each item;
// what brokers make up in one turn has the same names in the next.
//
// # Scenarios
//
// scenarios.txt lists what is to be shown of transactions, groups and storage, and what went wrong elsewhere, by number. Each has
// the scripts that run it, or tests that do where an answer can't show it. A script names its scenarios below its first line.
package differential
