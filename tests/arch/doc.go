// Package arch holds the rules of the whole tree, as tests: which package may import which, and what no file may contain.
package arch
