//go:build !race

package brokertest

// Race tells whether test and broker are built with the race detector: everything takes many times as long then.
const Race = false
