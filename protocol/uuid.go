package protocol

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

// UUID is an id of a topic, a directory or an incarnation. Its text form is base64url without padding, 22 characters.
type UUID [16]byte

// NewUUID returns a random id (version 4) that Kafka would accept: neither reserved nor with a text that starts with "-".
func NewUUID() UUID {
	for {
		var u UUID
		_, _ = rand.Read(u[:]) // never fails
		u[6] = u[6]&0x0f | 0x40
		u[8] = u[8]&0x3f | 0x80
		if u.String()[0] != '-' {
			return u
		}
	}
}

// ParseUUID reads the text form. Kafka's reader takes padding too.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) > 24 {
		return u, fmt.Errorf("%q is no id: longer than 24 characters", s)
	}
	encoding := base64.RawURLEncoding
	if len(s) == 24 {
		encoding = base64.URLEncoding
	}
	raw, err := encoding.DecodeString(s)
	if err != nil {
		return u, fmt.Errorf("%q is no id: %w", s, err)
	}
	if len(raw) != len(u) {
		return u, fmt.Errorf("%q is no id: %d bytes, not 16", s, len(raw))
	}
	return UUID(raw), nil
}

// String returns the text form.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// IsZero reports whether u is the id that stands for none.
func (u UUID) IsZero() bool { return u == UUID{} }
