package webhook

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SecretPrefix begins the secrets that Perdure makes; base64 follows.
const SecretPrefix = "whsec_"

// sign adds the headers of a delivery, after Standard Webhooks (standardwebhooks.com): the HMAC-SHA256 of id, time and
// body, once for each secret. A receiver that knows one of the secrets accepts the delivery.
func sign(headers map[string]string, secrets []string, id string, at time.Time, body []byte) error {
	timestamp := strconv.FormatInt(at.Unix(), 10)
	headers["webhook-id"], headers["webhook-timestamp"] = id, timestamp
	var signatures []string
	for _, secret := range secrets {
		key, err := keyOf(secret)
		if err != nil {
			return err
		}
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "%s.%s.", id, timestamp)
		mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	if len(signatures) > 0 {
		headers["webhook-signature"] = strings.Join(signatures, " ")
	}
	return nil
}

// keyOf returns the key of a secret: base64 after the prefix, or the bytes of any other text.
func keyOf(secret string) ([]byte, error) {
	encoded, ok := strings.CutPrefix(secret, SecretPrefix)
	if !ok {
		return []byte(secret), nil
	}
	key, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, fmt.Errorf("a secret that begins with %s continues with base64", SecretPrefix)
	}
	return key, nil
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
