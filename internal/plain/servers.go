package plain

import "strings"

// Servers returns the URLs in a list of servers, such as "http://a:7420,http://b:7420". A comma divides two of them only if
// http:// or https:// follows: a password may have commas.
func Servers(list string) []string {
	var urls []string
	for _, part := range strings.Split(list, ",") {
		scheme := strings.ToLower(strings.TrimSpace(part))
		if len(urls) > 0 && !strings.HasPrefix(scheme, "http://") && !strings.HasPrefix(scheme, "https://") {
			urls[len(urls)-1] += "," + part
			continue
		}
		urls = append(urls, part)
	}
	for i := range urls {
		urls[i] = strings.TrimSpace(urls[i])
	}
	return urls
}
