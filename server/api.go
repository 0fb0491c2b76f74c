package server

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// api is one row of the API table: what the server says about an API in
// ApiVersions, what its caller will have to be allowed, and who handles it.
// Rows are immutable.
type api struct {
	key      int16
	min, max int16 // versions served

	// advertisedMin is what ApiVersions gives as the lowest version. It differs
	// from min for Produce, where librdkafka wants to see 0 (KAFKA-18659), and
	// where it is unlisted.
	advertisedMin int16

	// need is the access that the request as a whole asks for. A row whose
	// access depends on the named resources has the need of one of them; its
	// handler applies it to each.
	need need

	handle func(*Server, *request) pending

	// pace tells whether the handler may wait before it returns. Answers that are
	// held back for one write with the next are not held back for a slow one.
	pace pace
}

type pace bool

const (
	quick pace = true // never waits, or flushes the connection before it does
	slow  pace = false
)

// need is an operation on a kind of resource, in the terms of Kafka's ACLs.
type need struct {
	resource  kmsg.ACLResourceType
	operation kmsg.ACLOperation
}

// request is one request of a client. It belongs to its handler until the
// pending that the handler returned has been awaited; what it aliases (body and
// all byte slices in it) is good exactly as long.
type request struct {
	header   protocol.RequestHeader
	body     kmsg.Request
	conn     *conn     // nil for a request that comes from inside of the process
	received time.Time // when the whole request had been read
}

// onController tells whether a request has come by a controller's listener.
func (r *request) onController() bool { return r.conn != nil && r.conn.listener.controller }

// pending is the second phase of a request. A handler runs its ordered part,
// where it may decide and append, at once; what is left is waited for off the
// connection's reader, so that the waits of pipelined requests overlap. Answers
// leave in the order of the requests all the same.
//
// The zero pending is no answer at all (acks=0).
type pending struct {
	response kmsg.Response // set: the answer, ready
	wait     func(context.Context) kmsg.Response
	closing  bool // close the connection once this answer is out, or at once if there is none
}

// answer is the pending of a handler that has its response already.
func answer(resp kmsg.Response) pending { return pending{response: resp} }

// await is the pending of a handler that has to wait: f runs on another
// goroutine than the handler did, after all earlier answers of the connection
// have left. Its context ends when the connection or the server does; its
// answer is not looked at then. A nil response is no answer.
func await(f func(context.Context) kmsg.Response) pending { return pending{wait: f} }

// hangup is the pending of a handler that can only show an error by closing the
// connection.
func hangup() pending { return pending{closing: true} }

// context is what the ordered part of a request waits within: it ends with the
// connection, or with the server for a request from inside of the process.
func (r *request) context(s *Server) context.Context {
	if r.conn != nil {
		return r.conn.ctx
	}
	return s.ctx
}
