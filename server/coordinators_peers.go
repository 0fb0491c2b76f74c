package server

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/protocol"
)

// peers are the connections to other brokers: one to each that has been asked something, pipelined, so that what one
// coordinator sends to one broker arrives in order.
type peers struct {
	dial     func(ctx context.Context, network, address string) (net.Conn, error)
	broker   func(id int32) *cluster.Broker
	listener string // inter.broker.listener.name; "" takes the first plain one
	clientID string

	mu     sync.Mutex
	conns  map[int32]*peer // guarded by mu
	closed bool            // guarded by mu
}

// peer is the connection to one life of a broker.
type peer struct {
	epoch  int64
	mu     sync.Mutex       // held while it is dialed
	client *protocol.Client // guarded by mu; nil before the first request
}

// request asks a broker something, at the request's version. A connection that failed is left, and the next request dials anew.
func (ps *peers) request(ctx context.Context, id int32, req kmsg.Request) (kmsg.Response, error) {
	b := ps.broker(id)
	if b == nil {
		return nil, fmt.Errorf("broker %d: %w", id, kerr.BrokerNotAvailable)
	}
	p, err := ps.peer(b)
	if err != nil {
		return nil, err
	}
	client, err := ps.connect(ctx, p, b)
	if err != nil {
		return nil, err
	}
	resp, err := client.Request(ctx, req)
	if err != nil {
		ps.drop(id, p)
		return nil, fmt.Errorf("broker %d: %w", id, err)
	}
	return resp, nil
}

func (ps *peers) peer(b *cluster.Broker) (*peer, error) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	if ps.closed {
		return nil, net.ErrClosed
	}
	p := ps.conns[b.ID]
	if p == nil || p.epoch != b.Epoch {
		if p != nil {
			p.close()
		}
		p = &peer{epoch: b.Epoch}
		ps.conns[b.ID] = p
	}
	return p, nil
}

func (ps *peers) connect(ctx context.Context, p *peer, b *cluster.Broker) (*protocol.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil {
		return p.client, nil
	}
	e := ps.endpoint(b)
	if e == nil {
		return nil, fmt.Errorf("broker %d has no listener for brokers: %w", b.ID, kerr.BrokerNotAvailable)
	}
	conn, err := ps.dial(ctx, "tcp", net.JoinHostPort(e.Host, strconv.Itoa(int(e.Port))))
	if err != nil {
		return nil, fmt.Errorf("broker %d: %w", b.ID, err)
	}
	p.client = protocol.NewClient(conn, ps.clientID)
	return p.client, nil
}

func (ps *peers) endpoint(b *cluster.Broker) *cluster.Endpoint {
	for i := range b.Endpoints {
		e := &b.Endpoints[i]
		if e.Host != "" && (ps.listener == e.Name || ps.listener == "" && e.Protocol == "PLAINTEXT") {
			return e
		}
	}
	return nil
}

func (ps *peers) drop(id int32, p *peer) {
	ps.mu.Lock()
	if ps.conns[id] == p {
		delete(ps.conns, id)
	}
	ps.mu.Unlock()
	p.close()
}

func (p *peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.client != nil {
		p.client.Close()
	}
}

func (ps *peers) close() {
	ps.mu.Lock()
	conns := ps.conns
	ps.conns, ps.closed = nil, true
	ps.mu.Unlock()
	for _, p := range conns {
		p.close()
	}
}
