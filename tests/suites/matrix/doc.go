// Command matrix writes what the suites of tests/suites/run found into docs/compatibility.md: a table of the suites, a table of clients and
// what they can do, and the exceptions. It replaces what stands between two comments there, and nothing else:
//
//	go run ./tests/suites/matrix [RESULTS]
//
// RESULTS is the folder with the results of the last run of each suite, by default the one where tests/suites/run puts them.
package main
