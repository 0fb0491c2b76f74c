// Package log is one partition's segments on disk.
package log
