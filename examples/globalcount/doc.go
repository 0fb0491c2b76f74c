// Command globalcount counts the words of text files through a broker, exactly once, however often workers and broker die
// on the way. It is an example to learn from: each stage is one file, and each does the same three things in one
// transaction: it reads records, writes what follows from them, and commits how far it has read. Either all of that
// happens or nothing, so work that was cut off is done again and never counted twice.
//
//	                load.go                    split.go                    add.go
//	files --> globalcount-chunks --> globalcount-deltas --> globalcount-counts
//	              text by the piece       word: +n of one batch     word: total so far
//
//	load    writes a file's pieces and the note that the file is loaded in one transaction.
//	split   reads pieces, counts the words of a batch and writes one delta per word; the group's offsets go along.
//	add     reads deltas, adds them to the totals in its memory and writes the new totals; the offsets go along. The
//	        topic of totals is its memory's backup: whoever takes a partition over reads it back from there.
//
// Every reader here reads committed records only: what belongs to an aborted transaction does not exist.
package main
