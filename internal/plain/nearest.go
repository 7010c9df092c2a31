package plain

// Nearest returns the word that was probably meant; "" if none is similar.
func Nearest(word string, words []string) string {
	best, at := "", len(word)/3+2
	for _, w := range words {
		if d := distance(word, w); d < at {
			best, at = w, d
		}
	}
	return best
}

// distance returns the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
