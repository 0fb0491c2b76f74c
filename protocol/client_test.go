package protocol

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// broker answers on the other end of a Client's connection until it ends: serve gets each request and returns the frames to send.
func broker(t *testing.T, serve func(h RequestHeader, req kmsg.Request) []byte) *Client {
	t.Helper()
	near, far := net.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		defer far.Close()
		frames := FrameReader{Max: 1 << 20}
		for {
			frame, err := frames.Read(far, nil)
			if err != nil {
				return
			}
			h, body, err := ParseRequestHeader(frame)
			if err != nil {
				t.Error(err)
				return
			}
			req, err := ParseRequest(h, body)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := far.Write(serve(h, req)); err != nil {
				return
			}
		}
	})
	c := NewClient(near, "test")
	t.Cleanup(func() {
		_ = c.Close()
		wg.Wait()
	})
	return c
}

// echo answers ListGroups with a group named like the first state asked for.
func echo(h RequestHeader, req kmsg.Request) []byte {
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	resp.Groups = []kmsg.ListGroupsResponseGroup{{Group: req.(*kmsg.ListGroupsRequest).StatesFilter[0] + h.ClientID}}
	return AppendResponse(nil, h.CorrelationID, resp)
}

func listGroups(state string) *kmsg.ListGroupsRequest {
	req := kmsg.NewPtrListGroupsRequest()
	req.SetVersion(5)
	req.StatesFilter = []string{state}
	return req
}

func TestManyRequestsShareOneConnection(t *testing.T) {
	c := broker(t, echo)
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		wg.Go(func() {
			for range 50 {
				resp, err := c.Request(context.Background(), listGroups(name))
				if err != nil || resp.(*kmsg.ListGroupsResponse).Groups[0].Group != name+"test" {
					t.Errorf("%+v, %v", resp, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestCancelledRequestLeavesTheConnection(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var held []byte
	c := broker(t, func(h RequestHeader, req kmsg.Request) []byte {
		if req.(*kmsg.ListGroupsRequest).StatesFilter[0] == "held" {
			held = echo(h, req)
			cancel()
			return nil
		}
		return append(held, echo(h, req)...)
	})
	if _, err := c.Request(ctx, listGroups("held")); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := c.Request(ctx, listGroups("held")); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	resp, err := c.Request(context.Background(), listGroups("next"))
	if err != nil || resp.(*kmsg.ListGroupsResponse).Groups[0].Group != "nexttest" {
		t.Fatalf("%+v, %v", resp, err)
	}
}

func TestCancelWithinSendingEndsTheConnection(t *testing.T) {
	near, far := net.Pipe() // nobody reads far, so the write blocks
	defer far.Close()
	c := NewClient(near, "test")
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	wrote := make(chan error)
	go func() {
		_, err := c.Request(ctx, listGroups("x"))
		wrote <- err
	}()
	if _, err := far.Read(make([]byte, 1)); err != nil { // the write has begun
		t.Fatal(err)
	}
	cancel()
	if err := <-wrote; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := c.Request(context.Background(), listGroups("y")); err == nil {
		t.Error("a connection with half a request goes on")
	}
}

func TestCloseFailsWhatWaits(t *testing.T) {
	got := make(chan struct{})
	c := broker(t, func(RequestHeader, kmsg.Request) []byte {
		close(got)
		return nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.Request(context.Background(), listGroups("x")); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	<-got
	_ = c.Close()
	wg.Wait()
	if _, err := c.Request(context.Background(), listGroups("x")); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestStrayAnswerEndsTheConnection(t *testing.T) {
	c := broker(t, func(h RequestHeader, req kmsg.Request) []byte {
		h.CorrelationID += 7
		return echo(h, req)
	})
	if _, err := c.Request(context.Background(), listGroups("x")); err == nil {
		t.Error("accepted")
	}
}

func TestProduceWithoutAcksHasNoAnswer(t *testing.T) {
	c := broker(t, func(h RequestHeader, req kmsg.Request) []byte {
		if h.Key == 0 {
			return nil
		}
		return echo(h, req)
	})
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	if resp, err := c.Request(context.Background(), req); err != nil || resp == nil {
		t.Fatal(resp, err)
	}
	if _, err := c.Request(context.Background(), listGroups("x")); err != nil {
		t.Error(err)
	}
}

func TestApiVersionsOfAnOlderBroker(t *testing.T) {
	c := broker(t, func(h RequestHeader, req kmsg.Request) []byte {
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.ErrorCode = unsupportedVersion
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MaxVersion: 2}}
		return AppendResponse(nil, h.CorrelationID, resp)
	})
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(4)
	resp, err := c.Request(context.Background(), req)
	if err != nil || resp.(*kmsg.ApiVersionsResponse).ApiKeys[0].MaxVersion != 2 {
		t.Fatalf("%+v, %v", resp, err)
	}
}
