package cluster

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"fmt"
	"hash"
	"iter"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SCRAM mechanisms, by Kafka's numbers.
const (
	ScramSHA256 int8 = 1
	ScramSHA512 int8 = 2
)

// Iterations that a credential may have, with either mechanism.
const (
	scramIterationsMin = 4096
	scramIterationsMax = 16384
)

// ScramCredential is what a broker has to know of a password to check it, which is less than what one needs to log in with it (RFC 5802). It is
// immutable.
type ScramCredential struct {
	Salt, StoredKey, ServerKey []byte
	Iterations                 int32
}

// ScramUser is a user with their credentials. It is immutable.
type ScramUser struct {
	Name        string
	Credentials map[int8]ScramCredential // by mechanism; at least one
}

// ScramUser returns the user of that name, nil if there is none.
func (im *Image) ScramUser(name string) *ScramUser {
	if v, ok := im.credentials.Get([]byte(name)); ok {
		return v.(*ScramUser)
	}
	return nil
}

// ScramUsers yields all users that have a credential, ascending by name.
func (im *Image) ScramUsers() iter.Seq[*ScramUser] {
	return func(yield func(*ScramUser) bool) {
		it := im.credentials.Root().Iterator()
		for _, v, ok := it.Next(); ok; _, v, ok = it.Next() {
			if !yield(v.(*ScramUser)) {
				return
			}
		}
	}
}

// credentialRecord sets a user's credential for one mechanism; a nil credential removes it.
type credentialRecord struct {
	user       string
	mechanism  int8
	credential *ScramCredential
}

func (credentialRecord) kind() recordKind { return kindCredential }

func (c credentialRecord) encode(b []byte) []byte {
	b = append(appendString(b, c.user), byte(c.mechanism))
	b = appendBool(b, c.credential != nil)
	if c.credential == nil {
		return b
	}
	for _, part := range [][]byte{c.credential.Salt, c.credential.StoredKey, c.credential.ServerKey} {
		b = appendString(b, string(part))
	}
	return binary.AppendVarint(b, int64(c.credential.Iterations))
}

func (r *reader) credential() credentialRecord {
	c := credentialRecord{user: r.string(), mechanism: int8(r.byte())}
	if r.bool() {
		c.credential = &ScramCredential{
			Salt: []byte(r.string()), StoredKey: []byte(r.string()), ServerKey: []byte(r.string()), Iterations: r.int32(),
		}
	}
	return c
}

func (e *edit) replayCredential(rec credentialRecord) error {
	next := &ScramUser{Name: rec.user, Credentials: map[int8]ScramCredential{}}
	if v, ok := e.credentials.Get([]byte(rec.user)); ok {
		next.Credentials = maps.Clone(v.(*ScramUser).Credentials)
	}
	if rec.credential != nil {
		next.Credentials[rec.mechanism] = *rec.credential
		e.credentials.Insert([]byte(rec.user), next)
		return nil
	}
	if _, ok := next.Credentials[rec.mechanism]; !ok {
		return fmt.Errorf("%w: user %q has no credential for mechanism %d to remove", errCorrupt, rec.user, rec.mechanism)
	}
	if delete(next.Credentials, rec.mechanism); len(next.Credentials) == 0 {
		e.credentials.Delete([]byte(rec.user))
	} else {
		e.credentials.Insert([]byte(rec.user), next)
	}
	return nil
}

// AlterScramCredentials answers an AlterUserScramCredentials request.
func (c *Controller) AlterScramCredentials(ctx context.Context, req *kmsg.AlterUserSCRAMCredentialsRequest) *kmsg.AlterUserSCRAMCredentialsResponse {
	wanted := credentialsWanted(req)
	var as credentialAlterations
	err := c.do(ctx, func(d *decider) (records []record) {
		as, records = d.alterCredentials(wanted)
		return records
	})
	if err != nil {
		as = credentialAlterations{}
		for _, a := range wanted {
			a.err = err
			as.add(a)
		}
	}
	return as.answer(req)
}

// credentialAlteration is what a request wants of one credential.
type credentialAlteration struct {
	user        string
	mechanism   int8
	credential  *ScramCredential // nil: delete
	err         error            // what is wrong with it whatever the metadata is
	emptySecret bool             // wrong as well, but said only of a user who is named once
}

// credentialsWanted takes from a request what it wants, and keeps nothing of its bytes.
func credentialsWanted(req *kmsg.AlterUserSCRAMCredentialsRequest) []credentialAlteration {
	var as []credentialAlteration
	for _, d := range req.Deletions {
		as = append(as, credentialAlteration{user: d.Name, mechanism: d.Mechanism, err: checkUser(d.Name, d.Mechanism)})
	}
	for i := range req.Upsertions {
		u := &req.Upsertions[i]
		a := credentialAlteration{user: u.Name, mechanism: u.Mechanism, err: checkUpsertion(u)}
		if a.err == nil {
			a.credential, a.emptySecret = deriveCredential(u), len(u.SaltedPassword) == 0
		}
		as = append(as, a)
	}
	return as
}

func checkUser(name string, mechanism int8) error {
	switch {
	case name == "":
		return reject(kerr.UnacceptableCredential, "Username must not be empty")
	case mechanism != ScramSHA256 && mechanism != ScramSHA512:
		return reject(kerr.UnsupportedSaslMechanism, "Unknown SCRAM mechanism")
	}
	return nil
}

func checkUpsertion(u *kmsg.AlterUserSCRAMCredentialsRequestUpsertion) error {
	if err := checkUser(u.Name, u.Mechanism); err != nil {
		return err
	}
	switch {
	case u.Iterations < scramIterationsMin:
		return reject(kerr.UnacceptableCredential, "Too few iterations")
	case u.Iterations > scramIterationsMax:
		return reject(kerr.UnacceptableCredential, "Too many iterations")
	}
	return nil
}

// credentialAlterations collects what becomes of each user: all that a request wants of one user is one alteration, or an error.
type credentialAlterations struct {
	all   []credentialAlteration
	named map[string]int // index in all
}

// add notes an alteration, with what is wrong with it. Users fail for good, and by being named again.
func (as *credentialAlterations) add(a credentialAlteration) {
	i, again := as.named[a.user]
	switch {
	case !again:
		if as.named == nil {
			as.named = map[string]int{}
		}
		as.named[a.user] = len(as.all)
		as.all = append(as.all, a)
	case as.all[i].err == nil:
		as.all[i].err = reject(kerr.DuplicateResource, "A user credential cannot be altered twice in the same request")
	}
}

// answer has those that go well first, then the others ascending by user.
func (as *credentialAlterations) answer(req *kmsg.AlterUserSCRAMCredentialsRequest) *kmsg.AlterUserSCRAMCredentialsResponse {
	resp := req.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
	add := func(user string, err error) {
		r := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		r.User = user
		r.ErrorCode, r.ErrorMessage = codeAndText(err)
		resp.Results = append(resp.Results, r)
	}
	for _, a := range as.all {
		if a.err == nil {
			add(a.user, nil)
		}
	}
	for _, user := range slices.Sorted(maps.Keys(as.named)) {
		if err := as.all[as.named[user]].err; err != nil {
			add(user, err)
		}
	}
	return resp
}

// alterCredentials decides on each user by themselves.
func (d *decider) alterCredentials(wanted []credentialAlteration) (as credentialAlterations, records []record) {
	for _, a := range wanted {
		if a.err == nil && a.credential == nil {
			if u := d.im.ScramUser(a.user); u == nil || u.Credentials[a.mechanism].Iterations == 0 {
				a.err = reject(kerr.ResourceNotFound, "Attempt to delete a user credential that does not exist")
			}
		}
		as.add(a)
	}
	for i := range as.all {
		a := &as.all[i]
		if a.err == nil && a.emptySecret {
			a.err = reject(kerr.UnacceptableCredential, "Salted password must not be empty")
		}
		if a.err == nil {
			records = append(records, credentialRecord{a.user, a.mechanism, a.credential})
		}
	}
	return as, records
}

// deriveCredential keeps of a salted password what checks it, and forgets it.
func deriveCredential(u *kmsg.AlterUserSCRAMCredentialsRequestUpsertion) *ScramCredential {
	algorithm := sha256.New
	if u.Mechanism == ScramSHA512 {
		algorithm = sha512.New
	}
	stored := algorithm()
	stored.Write(keyed(algorithm, u.SaltedPassword, "Client Key"))
	return &ScramCredential{
		Salt:       slices.Clone(u.Salt),
		StoredKey:  stored.Sum(nil),
		ServerKey:  keyed(algorithm, u.SaltedPassword, "Server Key"),
		Iterations: u.Iterations,
	}
}

func keyed(algorithm func() hash.Hash, key []byte, text string) []byte {
	h := hmac.New(algorithm, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
