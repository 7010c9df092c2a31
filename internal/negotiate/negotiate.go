// Package negotiate reads the headers by which a caller of HTTP chooses the form of an answer.
package negotiate

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// Gzip reports whether an answer may be compressed with gzip: Accept-Encoding names gzip, or any coding, with a weight
// above 0.
func Gzip(h http.Header) bool {
	accepted := false
	for coding, weight := range weights(h.Values("Accept-Encoding")) {
		switch coding {
		case "gzip":
			return weight > 0 // it precedes *
		case "*":
			accepted = weight > 0
		}
	}
	return accepted
}

// Names reports whether Accept names a media type, with a weight above 0. A caller that accepts every type does not name
// it.
func Names(h http.Header, mediaType string) bool {
	return weights(h.Values("Accept"))[mediaType] > 0
}

// weights returns the weights of the parts of a header, by name. Parts that cannot be read are left out.
func weights(headers []string) map[string]float64 {
	if len(headers) == 0 {
		return nil
	}
	found := map[string]float64{}
	for _, header := range headers {
		for part := range strings.SplitSeq(header, ",") {
			name, params, err := mime.ParseMediaType(part)
			if err != nil {
				continue
			}
			weight := 1.0
			if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
				weight = q
			}
			found[name] = weight
		}
	}
	return found
}

// Matches reports whether If-None-Match names an ETag, or any. Weak and strong tags are compared alike.
func Matches(headers []string, tag string) bool {
	for _, header := range headers {
		for part := range strings.SplitSeq(header, ",") {
			part = strings.TrimSpace(part)
			if part == "*" || part != "" && strings.TrimPrefix(part, "W/") == strings.TrimPrefix(tag, "W/") {
				return true
			}
		}
	}
	return false
}
