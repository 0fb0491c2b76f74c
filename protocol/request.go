package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrUnknownAPI is a request whose API key does not exist.
var ErrUnknownAPI = errors.New("unknown API key")

const apiVersionsKey = 18

// RequestHeader is the header of a request.
type RequestHeader struct {
	Key, Version  int16
	CorrelationID int32
	ClientID      string
	HasClientID   bool // false: the client id is null
}

// ParseRequestHeader reads the header of a request (v1, or v2 in flexible versions) from a frame without its size prefix, and returns the
// body behind it, which shares the frame's bytes. Tags of the header are skipped. Errors: ErrUnknownAPI (key, version and
// correlation id are set), ErrMalformed.
func ParseRequestHeader(frame []byte) (h RequestHeader, body []byte, err error) {
	if len(frame) < 8 {
		return h, nil, errCutShort
	}
	h.Key = int16(binary.BigEndian.Uint16(frame))
	h.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.CorrelationID = int32(binary.BigEndian.Uint32(frame[4:]))
	s := shapeOf(h.Key)
	if s == nil {
		return h, nil, fmt.Errorf("%w %d", ErrUnknownAPI, h.Key)
	}
	w := walker{src: frame[8:], budget: decodeSlack + DecodeFactor*len(frame)}
	n, err := w.rawLength(2)
	if err != nil {
		return h, nil, err
	}
	if n >= 0 {
		id := w.src
		if err := w.skip(n); err != nil {
			return h, nil, err
		}
		h.ClientID, h.HasClientID = string(id[:n]), true
	}
	if h.Version >= s.flexible {
		if err := w.tags(nil); err != nil {
			return h, nil, err
		}
	}
	return h, w.src, nil
}

func shapeOf(key int16) *shape {
	all := shapes()
	if key < 0 || int(key) >= len(all) {
		return nil
	}
	return all[key]
}

// ParseRequest decodes the body of a request. Its strings are copies; its []byte fields (records, member metadata, assignments, SASL bytes)
// alias body, so body must not be reused while they are. It takes no more memory than a small multiple of body, else ErrMalformed, which also
// a body cut short is. Bytes behind the request are ignored. The caller has checked that it serves that version.
func ParseRequest(h RequestHeader, body []byte) (kmsg.Request, error) {
	s := shapeOf(h.Key)
	if s == nil {
		return nil, fmt.Errorf("%w %d", ErrUnknownAPI, h.Key)
	}
	if err := s.checkBody(h.Version, body); err != nil {
		return nil, err
	}
	req := kmsg.RequestForKey(h.Key)
	req.SetVersion(h.Version)
	if err := req.ReadFrom(body); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return req, nil
}

// AppendRequest appends a request at its version as a whole frame: size, header, body. A nil clientID is null.
func AppendRequest(dst []byte, correlationID int32, clientID *string, req kmsg.Request) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.Key()))
	dst = binary.BigEndian.AppendUint16(dst, uint16(req.GetVersion()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if clientID == nil {
		dst = append(dst, 0xff, 0xff)
	} else {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(*clientID)))
		dst = append(dst, *clientID...)
	}
	if req.IsFlexible() {
		dst = append(dst, 0)
	}
	return closeFrame(req.AppendTo(dst), start)
}

// AppendResponse appends a response at its version as a whole frame: size, header (v1 in flexible versions; v0 else, and always for
// ApiVersions), body.
func AppendResponse(dst []byte, correlationID int32, resp kmsg.Response) []byte {
	start := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = AppendResponseHeader(dst, correlationID, resp)
	return closeFrame(resp.AppendTo(dst), start)
}

// AppendResponseHeader appends the header alone, for a body that is not written by kmsg.
func AppendResponseHeader(dst []byte, correlationID int32, resp kmsg.Response) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if resp.IsFlexible() && resp.Key() != apiVersionsKey {
		dst = append(dst, 0)
	}
	return dst
}

func closeFrame(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}

// parseResponse decodes a frame without its size prefix into resp and returns its correlation id.
func parseResponse(frame []byte, resp kmsg.Response) error {
	body := frame[4:]
	switch {
	case resp.Key() == apiVersionsKey:
		if len(body) >= 2 && binary.BigEndian.Uint16(body) == unsupportedVersion {
			resp.SetVersion(0) // what a broker answers that does not know the version
		}
	case resp.IsFlexible():
		w := walker{src: body, flexible: true, budget: decodeSlack + DecodeFactor*len(frame)}
		if err := w.tags(nil); err != nil {
			return err
		}
		body = w.src
	}
	return resp.ReadFrom(body)
}

const unsupportedVersion = 35
