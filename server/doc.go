// Package server is the broker as its clients see it: listeners and
// connections, the API table with one file per API, fetch sessions, and the
// list of what is started and stopped in which order.
//
// # One request
//
//	reader: frame -> header -> row of the table -> kmsg -> handler ---ready---> socket
//	                                                  |
//	                                                  +-- pending --> queue --> writer: wait --> socket
//
// A connection has a reader and, from its first pending on, a writer. Handlers
// run on the reader, in the order of the requests; what they leave to be waited
// for is queued for the writer. Answers leave in the order of the requests. A
// ready answer is written by the reader itself if nothing is queued, and
// together with those of the requests that arrived with it.
//
// # Ownership
//
// A request's bytes belong to its frame, which is freed when the answer has
// been encoded. Everything in a conn is owned by its reader or by its writer as
// the fields say; the API table is immutable; the cluster's metadata is read as
// immutable images. No lock of this package is held across a handler, a write or
// a wait.
//
// # Limits
//
// Requests are bounded by socket.request.max.bytes each and by
// queued.max.request.bytes together (see memory), and large ones take turns (see
// place). Pipelined requests per connection are bounded by maxPipelined,
// connections by max.connections and max.connections.per.ip, their idleness by
// connections.max.idle.ms.
package server
