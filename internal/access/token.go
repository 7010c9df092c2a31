package access

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"strings"
)

// The text of a token is pdr_ID_SECRET: 12 and 43 characters of base 62. The last six characters of the secret are the
// CRC-32 of everything before them, as in GitHub's tokens: a scanner for secrets recognizes a token without asking a node,
// and a node refuses random text without asking its store. The 37 characters before it have 220 random bits, so that a
// slow hash is unnecessary.
const (
	tokenPrefix = "pdr_"
	idLength    = 12
	randLength  = 37
	sumLength   = 6
	textLength  = len(tokenPrefix) + idLength + 1 + randLength + sumLength

	alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
)

// Secret is a new secret, and what a store keeps of it.
type Secret struct {
	ID   string
	Text string // pdr_ID_SECRET
	Hash [32]byte
}

// NewSecret returns a secret with a new id.
func NewSecret() Secret { return NewSecretOf(random(idLength)) }

// NewSecretOf returns another secret for an id.
func NewSecretOf(id string) Secret {
	text := tokenPrefix + id + "_" + random(randLength)
	text += checksum(text)
	return Secret{ID: id, Text: text, Hash: hash(text)}
}

// hash allocates nothing for a token, because each call of an agent computes one.
func hash(text string) [32]byte {
	var short [textLength]byte
	return sha256.Sum256(append(short[:0], text...))
}

// random returns n characters of the alphabet, each with the same probability.
func random(n int) string {
	const fair = 256 - 256%len(alphabet) // bytes from here on would favour the first characters
	out := make([]byte, 0, n)
	var buffer [64]byte
	for {
		_, _ = rand.Read(buffer[:]) // it never fails
		for _, b := range buffer {
			if int(b) < fair {
				if out = append(out, alphabet[int(b)%len(alphabet)]); len(out) == n {
					return string(out)
				}
			}
		}
	}
}

// checksum is the CRC-32 of text as six digits of base 62.
func checksum(text string) string {
	sum := crc32.ChecksumIEEE([]byte(text))
	var digits [sumLength]byte
	for i := sumLength - 1; i >= 0; i-- {
		digits[i] = alphabet[sum%uint32(len(alphabet))]
		sum /= uint32(len(alphabet))
	}
	return string(digits[:])
}

// IsID reports whether a text has the form of an id.
func IsID(s string) bool { return len(s) == idLength && strings.Trim(s, alphabet) == "" }

// idOf returns the id of a token; false if the text is not a token.
func idOf(text string) (id string, ok bool) {
	if len(text) != textLength || !strings.HasPrefix(text, tokenPrefix) || text[len(tokenPrefix)+idLength] != '_' {
		return "", false
	}
	id = text[len(tokenPrefix) : len(tokenPrefix)+idLength]
	body, sum := text[:textLength-sumLength], text[textLength-sumLength:]
	return id, IsID(id) && checksum(body) == sum
}
