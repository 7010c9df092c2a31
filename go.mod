module perdure

go 1.26
