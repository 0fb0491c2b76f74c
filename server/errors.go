package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kerr"
)

// errorCode gives the protocol's code for err: 0 for nil, the code of the kerr
// sentinel that err wraps, REQUEST_TIMED_OUT for a wait that ran out, and
// UNKNOWN_SERVER_ERROR for anything else.
func errorCode(err error) int16 {
	if err == nil {
		return 0
	}
	if known, ok := errors.AsType[*kerr.Error](err); ok {
		return known.Code
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return kerr.RequestTimedOut.Code
	}
	return kerr.UnknownServerError.Code
}

// errorMessage gives the text of err that goes to a client: nil for no error
// and for one that its code says all about, the facts that were wrapped around
// the code otherwise. What an unknown error says stays in the log.
func errorMessage(err error) *string {
	if err == nil {
		return nil
	}
	known, ok := errors.AsType[*kerr.Error](err)
	if !ok || err == error(known) {
		return nil
	}
	if m, ok := errors.AsType[*messageError](err); ok {
		return &m.message
	}
	text := err.Error()
	return &text
}

// messageError is a code together with the exact text that Kafka's clients see
// beside it.
type messageError struct {
	code    *kerr.Error
	message string
}

func (e *messageError) Error() string { return e.code.Message + ": " + e.message }
func (e *messageError) Unwrap() error { return e.code }

// withMessage is code with the text that goes to the client as it is.
func withMessage(code *kerr.Error, format string, args ...any) error {
	return &messageError{code, fmt.Sprintf(format, args...)}
}

// codeOf is errorCode for errors that come from below: one that has no code of
// its own is a fault of ours or of the machine, and is logged here, once.
func (s *Server) codeOf(err error, facts ...any) int16 {
	code := errorCode(err)
	if code == kerr.UnknownServerError.Code && !errors.Is(err, kerr.UnknownServerError) && !errors.Is(err, context.Canceled) {
		s.log.Error("request met an unexpected error", append([]any{slog.Any("error", err)}, facts...)...)
	}
	return code
}
