package rest

// Examples of the OpenAPI document. A test holds them against their schemas.
const (
	definitionExample = `{"type":"order","key":"order-1042","input":{"amount":4200},"onFailure":"undo",
"steps":{"charge":{"agent":"payments","with":{"amount":"${input.amount}"},"undo":{},"completeWithin":"30s"}}}`

	jobExample = `{"id":"job_0190a6b7c8d97e0f8123456789abcdef","key":"order-1042","type":"order","priority":5,
"current":"unsure","desired":"done","phase":"running","unsettled":1,
"submittedAt":"2026-01-02T15:04:05Z","updatedAt":"2026-01-02T15:04:06Z","input":{"amount":4200},
"definition":{"type":"order","key":"order-1042","priority":5,"input":{"amount":4200},"steps":{"charge":{"agent":"payments","with":{"amount":"${input.amount}"},"undo":{}}}},
"steps":{"charge":{"agent":"payments","action":"charge","current":"unsure","desired":"done","phase":"running","run":1,"direction":"do","was":"undone",
"turn":1,"key":"job_0190a6b7c8d97e0f8123456789abcdef/charge/1","lockedBy":"payments@h3","lockedUntil":"2026-01-02T15:04:36Z","completeBy":"2026-01-02T15:04:36Z","failures":0,"input":{"amount":4200},
"why":{"reason":"running","text":"run 1 by payments@h3, 29s left","until":"2026-01-02T15:04:36Z","since":"2026-01-02T15:04:06Z"}}}}`

	stepExample = `{"job":"job_0190a6b7c8d97e0f8123456789abcdef","name":"charge","agent":"payments","action":"charge","current":"done","desired":"done","phase":"settled",
"run":1,"direction":"do","was":"undone","turn":1,"key":"job_0190a6b7c8d97e0f8123456789abcdef/charge/1","failures":0,"outcome":"done",
"input":{"amount":4200},"output":{"id":"ch-9"},"startedAt":"2026-01-02T15:04:06Z","endedAt":"2026-01-02T15:04:07Z"}`

	graphExample = `{"hash":"9f2c6b0e4d1a8c7730b5e2f1a4d6c8e9","width":448,"height":92,"nodeWidth":168,"nodeHeight":44,
"nodes":[{"name":"reserve","x":24,"y":24,"agent":"stock","undo":true},{"name":"charge","x":256,"y":24,"agent":"payments","undo":true}],
"edges":[{"from":0,"to":1,"points":[192,46,256,46]}]}`

	logsExample = `{"holder":"host/h1/7f3a","chunks":[{"job":"job_0190a6b7c8d97e0f8123456789abcdef","step":"render","run":3,"stream":"stdout","offset":65536,"data":"ZnJhbWUgMTcKZnJhbWUgMTgK"},
{"job":"job_0190a6b7c8d97e0f8123456789abcdef","step":"mix","run":4,"stream":"stderr","offset":20,"data":"b29wcwo="}]}`
	logsAnswerExample = `{"results":[{"accepted":true,"next":65554},{"accepted":false,"reason":"gap","next":12}]}`

	artifactExample = `{"artifact":"sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae","size":5000,"next":5000}`
	partialExample  = `{"artifact":"sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae","size":5000,"next":1000}`

	previewExample = `{"job":{"id":"job_0190a6b7c8d97e0f8123456789abcdef","key":"order-1042","type":"order","priority":5,
"current":"unsure","desired":"undone","phase":"running","unsettled":1,
"submittedAt":"2026-01-02T15:04:05Z","updatedAt":"2026-01-02T15:04:08Z","inputBytes":15,
"steps":{"charge":{"agent":"payments","action":"charge","current":"unsure","desired":"undone","phase":"running","run":1,"direction":"do","was":"undone",
"turn":1,"key":"job_0190a6b7c8d97e0f8123456789abcdef/charge/1","lockedBy":"payments@h3","lockedUntil":"2026-01-02T15:04:36Z","completeBy":"2026-01-02T15:04:36Z","failures":0,
"why":{"reason":"running","text":"run 1 by payments@h3, 28s left","until":"2026-01-02T15:04:36Z","since":"2026-01-02T15:04:06Z"}}}},
"effects":{"dispatch":[],"settle":[],"park":[],"waitFor":[{"step":"charge","until":"2026-01-02T15:04:36Z"}],"withoutUndo":[]}}`

	validationExample = `{"plan":{"steps":2,"longestPath":{"steps":2,"time":"5m30s"},"limits":[{"name":"ads-api","steps":1,"amount":1,"max":50}],
"warnings":[{"kind":"noAgent","step":"charge","text":"agent payments, which 1 step needs, has claimed no runs for 12m0s"}]},
"graph":` + graphExample + `,"existing":{"job":"job_0190a6b7c8d97e0f8123456789abcdef","same":true}}`

	batchExample = `{"definition":{"type":"order","onFailure":"undo",
"steps":{"charge":{"agent":"payments","with":{"amount":"${input.amount}"},"undo":{},"completeWithin":"30s"}}},
"jobs":[{"key":"order-1042","input":{"amount":4200}},{"key":"order-1043","input":{"amount":1250},"priority":9},{"key":"order-1044","input":{}}]}`
	batchResultsExample = `{"results":[{"id":"job_0190a6b7c8d97e0f8123456789abcdef","key":"order-1042","created":true},
{"id":"job_0190a6b7c8d97e0f8123456789abcdee","key":"order-1043","created":false},
{"error":{"code":"invalid","detail":"/steps/charge/with/amount: ` + "`input.amount`: no field amount in input; it is empty" + `",
"errors":[{"pointer":"/steps/charge/with/amount","message":"` + "`input.amount`: no field amount in input; it is empty" + `"}]}}]}`

	pageExample = `{"items":[{"id":"job_0190a6b7c8d97e0f8123456789abcdef","key":"order-1042","type":"order","priority":5,
"current":"done","desired":"done","phase":"settled","unsettled":0,
"submittedAt":"2026-01-02T15:04:05Z","updatedAt":"2026-01-02T15:04:07Z","settledAt":"2026-01-02T15:04:07Z"}]}`

	historyExample = `{"items":[{"step":"charge","run":1,"at":"2026-01-02T15:04:06Z","event":"failed","author":"payments@h3","detail":"503: try later"},
{"at":"2026-01-02T15:14:06Z","event":"undo","author":"anna","detail":"ordered twice"}]}`

	runsOfJobExample = `{"items":[{"step":"charge","run":1,"turn":1,"direction":"do","holder":"payments@h3","readyAt":"2026-01-02T15:04:05Z","startedAt":"2026-01-02T15:04:05Z","endedAt":"2026-01-02T15:04:06Z","outcome":"failed","error":"503: try later"},
{"step":"charge","run":2,"turn":1,"direction":"do","holder":"payments@h3","readyAt":"2026-01-02T15:04:09Z","startedAt":"2026-01-02T15:04:10Z"}]}`

	reasonExample  = `{"reason":"ordered twice"}`
	inputExample   = `{"reason":"wrong card","input":{"amount":4200,"card":"c-2"}}`
	approveExample = `{"reason":"ok by phone","data":{"carrier":"dhl"}}`
	settleExample  = `{"reason":"seen on the bank's page","as":"done","output":{"id":"ch-9"}}`

	bulkBodyExample = `{"act":"resume","filter":{"type":"order","error":"card_declined","since":"1h"},"reason":"the bank is back"}`
	bulkExample     = `{"id":"bulk_0190a6b7c8d97e0f8123456789abcdef","act":"resume","filter":{"type":"order","since":"2026-01-02T14:04:05Z","error":"card_declined"},
"author":"anna","reason":"the bank is back","state":"running","expected":{"n":1312},"matched":650,"done":641,"unchanged":0,"refused":9,
"startedAt":"2026-01-02T15:04:05Z","updatedAt":"2026-01-02T15:04:10Z","rate":130,"expectedEnd":"2026-01-02T15:04:15Z"}`
	bulkPreviewExample = `{"count":{"n":1312},"samples":[{"id":"job_0190a6b7c8d97e0f8123456789abcdef","key":"order-1042","type":"order","priority":5,
"current":"unsure","desired":"done","phase":"parked","unsettled":1,"submittedAt":"2026-01-02T15:04:05Z","updatedAt":"2026-01-02T15:04:07Z"}],
"refused":{"conflict":3},"unchanged":0}`
	bulkRefusalsExample = `{"items":[{"job":"job_0190a6b7c8d97e0f8123456789abcdef","code":"conflict","message":"no step of this job is parked, or waits for a retry or for its start"}]}`

	claimExample = `{"holder":"payments@h3","max":8,"wait":"20s","heartbeat":"15s","requestId":"h3-000042"}`
	runsExample  = `{"runs":[{"job":"job_0190a6b7c8d97e0f8123456789abcdef","step":"charge","action":"charge","run":1,"direction":"do",
"input":{"amount":4200},"key":"job_0190a6b7c8d97e0f8123456789abcdef/charge/1",
"lockedUntil":"2026-01-02T15:04:36Z","completeBy":"2026-01-02T15:04:36Z","remainingMs":30000,"priority":5}]}`

	reportsExample = `{"holder":"payments@h3","reports":[
{"job":"job_0190a6b7c8d97e0f8123456789abcdef","step":"charge","run":1,"outcome":"done","output":{"id":"ch-9"}},
{"job":"job_0190a6b7c8d97e0f8123456789abcdee","step":"charge","run":3,"outcome":"failed","error":{"code":"503","message":"try later","retryAfter":"30s"},"effect":"none"}]}`
	resultsExample = `{"results":[{"accepted":true},{"accepted":false,"reason":"stale","message":"run 4 of step charge was let out after run 3"}]}`

	heartbeatsExample       = `{"holder":"payments@h3","runs":[{"job":"job_0190a6b7c8d97e0f8123456789abcdef","step":"charge","run":1,"progress":{"done":3,"total":10}}]}`
	heartbeatResultsExample = `{"runs":[{"job":"job_0190a6b7c8d97e0f8123456789abcdef","step":"charge","run":1,"lockedUntil":"2026-01-02T15:04:51Z","remainingMs":15000,"stop":false}]}`

	maxExample       = `{"max":50,"perKey":{"max":2,"rate":"5/s"},"keys":{"acct-7":{"max":10}}}`
	limitKeysExample = `{"items":[{"key":"acct-7","max":10,"rate":"5/s","burst":1,"used":10,"ready":4120,"readyCapped":true},{"key":"acct-12","max":2,"rate":"5/s","burst":1,"used":2,"ready":31,"neverFit":4,"roomAt":"2026-01-02T15:04:05Z"}]}`
	limitExample     = `{"name":"ads-api","max":50,"perKey":{"max":2,"rate":"5/s","burst":1},"keys":{"acct-7":{"max":10}},"used":1,"holders":[{"job":"job_0190a6b7c8d97e0f8123456789abcdef","step":"charge","run":1,"key":"acct-7"}]}`
	ageingExample    = `{"ageing":"10m","fairBy":"job.labels.customer","weights":{"gold":4}}`
	agentExample     = `{"name":"payments","ageing":"10m","patience":"1m","fairBy":"job.labels.customer","weights":{"gold":4},"holders":2,"seenAt":"2026-03-01T12:00:00Z","asOf":"2026-03-01T12:00:02Z","nodes":1,"slots":20,
"running":20,"ready":912,"oldestReady":"2026-03-01T11:59:21Z","refused":1,"errors":{"card_declined":38},"health":[{"holder":"h3-1","runs":100,"done":12,"meanDuration":"1.5s","weight":0.1}],"shares":[{"value":"gold","weight":4,"ahead":0.75,"ready":12}]}`
	limitsExample = `{"items":[{"name":"agent:payments","max":10,"used":0,"holders":[]}]}`

	alertExample = `{"id":12,"job":"job_0190a6b7c8d97e0f8123456789abcdef","type":"order","jobKey":"order-1042","step":"charge","kind":"waiting","code":"503","attempts":5,"message":"charge waits for 1h after 5 failures",
"raisedAt":"2026-01-02T15:04:06Z","closedAt":"2026-01-02T15:24:06Z","closedBy":"anna"}`
	alertsExample = `{"items":[{"id":12,"job":"job_0190a6b7c8d97e0f8123456789abcdef","type":"order","jobKey":"order-1042","step":"charge","kind":"parked","code":"card_declined","attempts":5,"message":"charge is parked after 5 failures",
"raisedAt":"2026-01-02T15:04:06Z"}]}`

	nodesExample = `{"items":[{"id":"n1","state":"alive","host":"h3","pid":4711,"version":"0.1.0","listen":"127.0.0.1:7420","agents":["http","shell"],
"slots":{"http":16,"shell":4},"leads":[{"role":"supervisor","epoch":3,"until":"2026-01-02T15:04:16Z"}],"standsBy":[],
"since":"2026-01-02T15:00:00Z","seenAt":"2026-01-02T15:04:06Z"}]}`

	statsExample = `{"asOf":"2026-01-02T15:04:06Z",
"jobs":{"waiting":{"n":50120},"running":{"n":212},"parked":{"n":41},"settled":{"n":1000000,"estimated":true}},
"types":[{"type":"order","waiting":50000,"running":200,"parked":40,"undoing":3,"oldestWaiting":"2026-01-02T14:42:00Z"}],
"reasons":[{"reason":"noAgent","name":"mail","steps":812,"oldest":"2026-01-02T14:52:00Z","lastClaim":"2026-01-02T14:52:00Z"},
{"reason":"limit","name":"agent:ads-api","steps":96,"used":10,"max":10}],
"alerts":[{"kind":"parked","type":"order","step":"charge","code":"card_declined","n":38,"oldest":"2026-01-02T13:02:11Z"}],
"agents":[{"agent":"payments","ready":912,"oldestReady":"2026-01-02T15:03:25Z","running":20,"nodes":2,"slots":20,"holders":2,"lastClaim":"2026-01-02T15:04:05Z","errors":{"card_declined":38}}],
"alertKinds":{"parked":41},"limits":[{"limit":"agent:ads-api","used":10,"max":10}],"signals":{"kept":{"n":3},"waiters":{"n":204}},"nodes":{"alive":2,"dead":0},
"series":{"every":"1m","from":"2026-01-02T15:03:00Z","submitted":[812,90],"done":[790,88],"undone":[4,0],"parked":[1,0],"failed":[22,2]}}`

	healthExample = `{"status":"ok","version":"0.1.0"}`

	meExample        = `{"name":"anna","role":"operator","groups":["managers"],"via":"session","expires":"2026-01-03T03:04:05Z"}`
	tokenExample     = `{"id":"8XkqT2mWc0Za","name":"ci","role":"submitter","types":["order"],"createdAt":"2026-01-02T15:04:05Z","createdBy":"anna","expiresAt":"2026-04-02T15:04:05Z"}`
	tokenBodyExample = `{"name":"ci","role":"submitter","types":["order"],"expiresIn":"90d"}`
	newTokenExample  = `{"id":"8XkqT2mWc0Za","name":"ci","role":"submitter","types":["order"],"createdAt":"2026-01-02T15:04:05Z","createdBy":"anna","expiresAt":"2026-04-02T15:04:05Z",
"token":"pdr_8XkqT2mWc0Za_…"}`
	sessionExample    = `{"id":"b9RtUw27LxQe","name":"anna","role":"operator","token":"8XkqT2mWc0Za","createdAt":"2026-01-02T15:04:05Z","expiresAt":"2026-01-03T03:04:05Z","lastUsedAt":"2026-01-02T16:04:05Z"}`
	hostBodyExample   = `{"incarnation":"7f3a2c11","boot":"5b0c","grid":"local","labels":{"zone":"a"},"capacity":{"cpu":8,"memory":"32GiB","slots":10},"version":"1.4.0"}`
	registeredExample = `{"holder":"host/h1/7f3a2c11","state":"ready"}`
	hostExample       = `{"name":"h1","state":"ready","holder":"host/h1/7f3a2c11","incarnation":"7f3a2c11","grid":"local","labels":{"zone":"a"},"capacity":{"cpu":8,"memory":"32GiB","slots":10},"heartbeat":"1m",
	"used":{"cpu":2,"memory":"4GiB"},"runs":1,"reservation":{"job":"job_0190a6b7c8d97e0f8123456789abcdef","step":"render","since":"2026-01-02T15:13:05Z","until":"2026-01-02T15:33:05Z"},"registeredAt":"2026-01-02T15:04:05Z","seenAt":"2026-01-02T15:14:05Z"}`
	auditExample = `{"items":[{"id":812,"at":"2026-01-02T15:14:06Z","author":"anna","via":"session","credential":"b9RtUw27LxQe","address":"10.0.3.7","act":"undo",
"job":"job_0190a6b7c8d97e0f8123456789abcdef","reason":"ordered twice","outcome":"done"},
{"id":811,"at":"2026-01-02T15:13:40Z","author":"ci","via":"token","credential":"8XkqT2mWc0Za","address":"10.0.3.9","act":"putLimit","target":"/v1/limits/ads-api","outcome":"refused","code":"forbidden"}]}`
)

const (
	holdExample  = `{"leads":true,"epoch":7,"leader":"web1/4711","until":"2026-01-02T15:04:15Z"}`
	rolesExample = `{"items":[
{"name":"courier","kind":"node","epoch":12,"leader":"n-7f3a","leaderHost":"web1","until":"2026-01-02T15:04:15Z","standby":"n-91bc","standbyHost":"web2","standbyUntil":"2026-01-02T15:04:14Z"},
{"name":"nightly","kind":"held","epoch":7,"leader":"web1/4711","until":"2026-01-02T15:04:15Z"}]}`
)

const (
	webhookBodyExample = `{"url":"https://shop.example/hooks/perdure","on":["parked","done"],"types":["order"]}`
	newWebhookExample  = `{"name":"shop","url":"https://shop.example/hooks/perdure","on":["parked","done"],"types":["order"]}`
	webhookExample     = `{"name":"shop","url":"https://shop.example/hooks/perdure","on":["parked","done"],"types":["order"],"format":"cloudEvents","state":"failing","pending":3,"dead":0,
		"oldest":{"id":"ntc_4f0c2a7be1d84d0f9a33b1c5d2e6f708","type":"perdure.job.parked","job":"job_0190a6b7c8d97e0f8123456789abcdef","time":"2026-01-02T15:04:05Z","state":"pending","attempts":2,"nextAttempt":"2026-01-02T15:04:40Z","error":"the receiver answered 503"},
		"createdAt":"2026-01-02T15:04:05Z","updatedAt":"2026-01-02T15:04:05Z"}`
	createdWebhookExample = `{"name":"shop","url":"https://shop.example/hooks/perdure","on":["parked","done"],"types":["order"],"format":"cloudEvents","state":"active","secret":"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw","pending":0,"dead":0,
		"createdAt":"2026-01-02T15:04:05Z","updatedAt":"2026-01-02T15:04:05Z"}`
	deliveriesExample = `{"items":[{"id":"ntc_4f0c2a7be1d84d0f9a33b1c5d2e6f708","type":"perdure.job.parked","job":"job_0190a6b7c8d97e0f8123456789abcdef","time":"2026-01-02T15:04:05Z",
		"state":"pending","attempts":2,"nextAttempt":"2026-01-02T15:04:40Z","error":"the receiver answered 503"}]}`
)
