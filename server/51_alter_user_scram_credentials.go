package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterUserScramCredentials (51), version 0.
//
// Behavior
//   - Sets and removes the credentials of users, by mechanism: SCRAM-SHA-256 or -512, with 4096 to 16384 iterations. The client sends a salted
//     password; what is kept can check a login, but not log in.
//   - Each user is altered or refused by themselves; of one user a request can alter one credential, else DUPLICATE_RESOURCE.
//   - Users that are altered are answered first, deletions before upsertions, then the others ascending; Kafka's order is that of hash maps.
//
// Where we differ: an empty salted password is UNACCEPTABLE_CREDENTIAL, in Kafka UNKNOWN_SERVER_ERROR.

func (s *Server) handleAlterUserSCRAMCredentials(r *request) pending {
	ctx, cancel := context.WithTimeout(s.ctx, s.requestTimeout())
	defer cancel()
	return answer(s.ctrl.AlterScramCredentials(ctx, r.body.(*kmsg.AlterUserSCRAMCredentialsRequest)))
}
