package cluster

import (
	"bytes"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestCredentialIsThatOfTheStandard checks the exchange that RFC 7677 shows by what is kept of the password.
func TestCredentialIsThatOfTheStandard(t *testing.T) {
	decode := func(s string) []byte {
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	u.Name, u.Mechanism, u.Iterations, u.Salt = "user", ScramSHA256, 4096, decode("W22ZaJ0SNY7soEsUEjb6gQ==")
	var err error
	if u.SaltedPassword, err = pbkdf2.Key(sha256.New, "pencil", u.Salt, 4096, sha256.Size); err != nil {
		t.Fatal(err)
	}
	c := deriveCredential(&u)
	const exchange = "n=user,r=rOprNGfwEbeRWgbNEkqO," +
		"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096," +
		"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
	if got := keyed(sha256.New, c.ServerKey, exchange); !bytes.Equal(got, decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")) {
		t.Errorf("server's signature %x", got)
	}
	clientKey := decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
	for i, b := range keyed(sha256.New, c.StoredKey, exchange) {
		clientKey[i] ^= b
	}
	if got := sha256.Sum256(clientKey); !bytes.Equal(got[:], c.StoredKey) {
		t.Errorf("the client's proof is not accepted")
	}
	clear(u.Salt)
	if !bytes.Equal(c.Salt, decode("W22ZaJ0SNY7soEsUEjb6gQ==")) {
		t.Error("the credential keeps bytes of the request")
	}
}
