// Package vfs is the file system as Oncelog's storage packages see it: the operating system's (OS), one in memory
// that can lose power (Mem), and one that fails where it is told to (Inject). Nothing below the server opens a file
// by any other way, so every claim about crash safety can be tried after each single operation.
//
// # What is durable when
//
// The contract that the storage packages build on, and that Mem enforces, is the weakest one that file systems in
// use give:
//
//	write, truncate      durable after File.Sync of the same file. Until then any of the pages, and any size that
//	                     the file has had, may be found after a loss of power, each by itself.
//	create, rename,      durable after FS.SyncDir of the directory. Until then any of them may be missing, in any
//	remove, mkdir        order, whether or not the file itself was synced. A rename is atomic: the old name or the
//	                     new one, never both or neither.
//	SIGKILL              loses nothing that a system call has returned for.
//
// # Testing with it
//
// A crash test wraps a Mem with Inject and clones it (Mem.CrashClone) whenever the injector sees an operation that
// changes something, opens each clone and checks what must hold. A fault test counts the operations of a run once
// and then repeats it, failing each in turn. Both need no hook in the code under test.
//
// # Concurrency
//
// All implementations of FS and File are safe for concurrent use, except for Read and Write of one File. An Injector
// is called without any lock held.
package vfs
